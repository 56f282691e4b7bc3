"""Gaussian-process classifiers that learn from a handful of labels and know how sure they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sureshot.data import read_table
    from sureshot.estimators import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier
    from sureshot.pipelines import pipeline_call

__all__ = [
    "FewShotClassifier",
    "GPClassifier",
    "KernelSearchClassifier",
    "TreeGPClassifier",
    "pipeline_call",
    "read_table",
]


def __getattr__(name: str) -> Any:
    """The version; the estimators, imported when they are first asked for, as the command line's help need not wait."""
    if name == "__version__":
        from importlib.metadata import version

        return version("sureshot")
    if name == "pipeline_call":
        from sureshot import pipelines

        return pipelines.pipeline_call
    if name == "read_table":
        from sureshot import data

        return data.read_table
    if name in __all__:
        from sureshot import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'sureshot' has no attribute {name!r}")
