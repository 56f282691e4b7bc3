"""Gaussian-process classifiers that learn from a handful of labels and know how sure they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.data import read_table
    from sureshot.estimators import (
        FewShotClassifier,
        FewShotRegressor,
        GPClassifier,
        GPRegressor,
        KernelSearchClassifier,
        KernelSearchRegressor,
        TreeGPClassifier,
    )
    from sureshot.estimators.saved import load_estimator as load
    from sureshot.pipelines import pipeline_call

__all__ = [
    "FewShotClassifier",
    "FewShotRegressor",
    "GPClassifier",
    "GPRegressor",
    "KernelSearchClassifier",
    "KernelSearchRegressor",
    "TreeGPClassifier",
    "load",
    "pipeline_call",
    "read_table",
]


_imported = imported_when_asked_for(__name__)


def __getattr__(name: str) -> Any:
    """The version; the rest, imported when it is first asked for, as the command line's help need not wait."""
    if name == "__version__":
        from importlib.metadata import version

        return version("sureshot")
    return _imported(name)
