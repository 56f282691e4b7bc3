"""Which rows to label next: those whose two most probable classes are about as probable, no two of them alike.

The margin between the two says how much an answer may change.

Mutual information of label and latents, which looks like what a label teaches, asks for the rows that are far from
everything: on half of the pools it was behind random rows. The study is docs/results/what-to-label.md.
"""

from __future__ import annotations

import numpy as np

from sureshot.estimators.classes.class_fitted import ClassFitted


def doubts_of(fitted: ClassFitted, probabilities: np.ndarray) -> np.ndarray:
    """One minus the margin of class probabilities (n, C), (n,); `ValueError` where there is one class only."""
    if probabilities.shape[1] < 2:
        raise ValueError(
            "suggest needs two classes, between which a label could decide, and the model knows only "
            f"{fitted.classes.tolist()[0]!r}: label the rows of largest outlier_score first."
        )
    return 1 - margins(probabilities)


def margins(probabilities: np.ndarray) -> np.ndarray:
    """The largest minus the second of class probabilities (n, C), (n,)."""
    two = np.partition(probabilities, -2, axis=1)[:, -2:]
    found: np.ndarray = two[:, 1] - two[:, 0]
    return found
