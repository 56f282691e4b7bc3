"""Labelled rows, each as the others predict it: what decisions are calibrated by, with no row held out.

A row that comes is one more of the kind that was learnt; so where it stands among labelled rows that are left out says
how unusual it is: its conformal p-value. Settings and the units of outlier scores are kept as all rows have them; what
is left out is the row's label and place, in closed form where that is honest, else by folds.

A row of weight w stands for w equal rows. They are left out together, and count once. Where equal rows have different
labels, as in a table of few values, one of them is left out, and each counts. A row alone in its class does not count.
Where every class has one row only, all of them count: too little is rejected and sets are too large, never the other
way.

References: Vovk, Gammerman & Shafer 2005; Barber, Candes, Ramdas & Tibshirani 2021, on the jackknife.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sureshot.estimators.classes.p_values import CalibrationScores
from sureshot.estimators.outliers import MOST_LEFT_OUT, OutlierScore
from sureshot.estimators.rows.labelled_rows import LabelledRows, equal_rows
from sureshot.estimators.rows.preprocessing import Scaling

MOST_ROWS = 2000
"""That count; with so many the share of false alarms is known to half a percent."""


def outlier_scores_left_out(
    rows: LabelledRows,
    chosen: np.ndarray,  # (M,), `places_left_out`
    of_model: np.ndarray,  # (M,), the model's outlier score of each row without it
    score: OutlierScore | None,  # with distances, which not all rows have
    scalings: Callable[[np.ndarray], tuple[Scaling, ...]],  # of other rows
) -> CalibrationScores:
    """Of labelled rows, each seen from the others."""
    if score is not None:
        of_model = _with_distances(rows, chosen, of_model, score, scalings)
    return CalibrationScores.of(of_model, rows.evidence[chosen])


def _with_distances(
    rows: LabelledRows,
    chosen: np.ndarray,
    of_model: np.ndarray,
    score: OutlierScore,
    scalings: Callable[[np.ndarray], tuple[Scaling, ...]],
) -> np.ndarray:
    """The outlier scores of the chosen rows (M,), from those of the model.

    Few rows are left out of the scales of columns as well: a value that no other row has sets its own scale.
    """
    alone = _alone(rows)
    found = score(rows.x[chosen], of_model, alone[chosen])
    places = np.unique(equal_rows(rows.x), return_index=True)[1]  # rows count once each
    if 2 < len(places) <= MOST_LEFT_OUT:
        for k in np.flatnonzero(alone[chosen]):
            others = rows.x[places[places != chosen[k]]]
            away = score.measured_from(others, scalings(others))
            found[k] = away(rows.x[chosen[[k]]], of_model[[k]])[0]
    return found


def labels_left_out(rows: LabelledRows, chosen: np.ndarray, p: np.ndarray) -> CalibrationScores:
    """Minus the probabilities (M, C) of the chosen rows' own labels, by the others."""
    return CalibrationScores.of(-p[np.arange(len(chosen)), rows.y[chosen]], rows.evidence[chosen])


def places_left_out(rows: LabelledRows, n_classes: int) -> np.ndarray:
    """Places (M,) of the rows whose class keeps a row without them, or of all if there are none; evenly, if many."""
    together = np.bincount(rows.y, minlength=n_classes)[rows.y] > 1
    places = np.flatnonzero(together | (rows.left_out_shares < 1))
    if not len(places):
        places = np.arange(len(rows.y))
    return places[np.unique(np.linspace(0, len(places) - 1, MOST_ROWS).astype(np.int64))]


def _alone(rows: LabelledRows) -> np.ndarray:
    """Whether no other row is where a row is, whatever their labels, (N,) bool."""
    place = equal_rows(rows.x)
    found: np.ndarray = np.bincount(place)[place] == 1
    return found
