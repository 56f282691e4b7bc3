"""What the papers printed, for the pages of the campaigns; never beside measured numbers.

References: Snell & Zemel 2021, tables 1, 2, 5 and 6; Ke et al. 2023, table 1. Accuracy in per cent, 5-way.
"""

from __future__ import annotations

import pandas as pd

from experiments.experiment import Table

_COLUMNS = ("CUB 1", "CUB 5", "mini 1", "mini 5", "mini-CUB 1", "mini-CUB 5", "Omniglot-EMNIST 1", "Omniglot-EMNIST 5")
_ROWS: dict[str, tuple[float | None, ...]] = {
    "Feature Transfer": (46.19, 68.40, 39.51, 60.51, 32.77, 50.34, 64.22, 86.10),
    "Baseline++": (61.75, 78.51, 47.15, 66.18, 39.19, 57.31, 56.84, 80.01),
    "MatchingNet": (60.19, 75.11, 48.25, 62.71, 36.98, 50.72, 75.01, 87.41),
    "RelationNet": (62.52, 78.22, 48.76, 64.20, 37.13, 51.76, 75.62, 87.84),
    "MAML": (56.11, 74.84, 45.39, 61.58, 34.01, 48.83, 72.68, 83.54),
    "Bayesian MAML": (55.93, 72.87, 44.46, 62.60, 33.52, 51.35, 63.94, 65.26),
    "Bayesian MAML (Chaser)": (53.93, 71.16, 43.74, 59.23, 36.22, 51.53, 55.04, 54.19),
    "ABML": (48.80, 70.91, 40.88, 58.19, 31.51, 47.80, 73.89, 87.28),
    "ProtoNet": (52.52, 75.93, 44.19, 64.07, 33.27, 52.16, 72.04, 87.22),
    "DKT cosine": (63.37, 77.73, 48.64, 62.85, 40.22, 55.65, 73.06, 88.10),
    "LS Gibbs ML": (60.23, 74.58, 46.75, 59.93, 36.41, 50.33, 62.91, 83.80),
    "LS Gibbs PL": (60.07, 78.14, 47.05, 66.01, 36.73, 56.70, 70.70, 86.59),
    "OVE cosine ML": (63.98, 77.44, 50.02, 64.58, 39.66, 55.71, 68.43, 86.22),
    "OVE cosine PL": (60.11, 79.07, 48.00, 67.14, 37.49, 57.23, 77.00, 87.52),
    "OVE RBF ML": (58.49, 75.50, 50.33, 64.62, 36.99, 51.75, 78.05, 88.98),
    "OVE RBF PL": (56.18, 77.96, 48.06, 66.66, 35.06, 55.12, 74.62, 89.87),
    "OVE linear ML": (62.48, 77.94, 50.81, 66.66, 39.61, 55.07, 72.42, 88.27),
    "OVE linear PL": (60.44, 78.54, 47.29, 66.66, 36.83, 56.46, 75.87, 88.77),
    "OVE normalised RBF ML": (62.75, 78.71, 50.26, 64.84, 38.42, 54.20, 75.51, 88.86),
    "OVE normalised RBF PL": (59.78, 78.42, 47.51, 66.42, 37.50, 56.80, 76.01, 89.42),
    "CDKT ML, tau < 1": (65.21, 79.10, 47.54, 63.79, 40.43, 55.72, None, None),
    "CDKT PL, tau < 1": (59.49, 76.95, 44.97, 60.87, 39.18, 56.18, None, None),
    "CDKT ML, tau = 1": (60.85, 75.98, 43.50, 59.69, 35.57, 52.42, None, None),
    "CDKT PL, tau = 1": (52.91, 73.34, 40.29, 60.23, 37.62, 54.32, None, None),
}
_BENCHMARKS = {
    "cub": _COLUMNS[0:2],
    "miniimagenet": _COLUMNS[2:4],
    "miniimagenet-cub": _COLUMNS[4:6],
    "omniglot-emnist": _COLUMNS[6:8],
}


def published_tables(benchmark: str | None) -> tuple[Table, ...]:
    """The papers' accuracies on a benchmark, or nothing for None."""
    if benchmark is None:
        return ()
    columns = _BENCHMARKS[benchmark]
    places = [_COLUMNS.index(column) for column in columns]
    frame = pd.DataFrame(
        [
            {"method": name, **{column: row[place] for column, place in zip(columns, places, strict=True)}}
            for name, row in _ROWS.items()
            if row[places[0]] is not None
        ]
    )
    caption = "Accuracy, %, 5-way, 1 and 5 shots (Snell & Zemel 2021, tables 1, 2, 5, 6; Ke et al. 2023, table 1)."
    return (Table("published", caption, frame, digits=2, published=True),)
