"""Reports for people: one self-contained HTML page, its figures, and the environment they were made in.

>>> from sureshot.report import Predictions, Report, render
>>> page = render(Report("Two rows", predictions=Predictions([[0.9, 0.1], [0.3, 0.7]], ["cat", "dog"])))
>>> "Most uncertain rows" in page
True
"""

from sureshot.report.content import Confusion, Measured, Picture, Predictions, Report, Table, Tile, worst_pairs
from sureshot.report.environment import environment
from sureshot.report.html import render, write_report
from sureshot.report.plots import (
    confidence_histogram,
    figure_to_data_uri,
    image_to_data_uri,
    objective_trace,
    outlier_histogram,
    reliability_diagram,
    risk_coverage,
)

__all__ = [
    "Confusion",
    "Measured",
    "Picture",
    "Predictions",
    "Report",
    "Table",
    "Tile",
    "confidence_histogram",
    "environment",
    "figure_to_data_uri",
    "image_to_data_uri",
    "objective_trace",
    "outlier_histogram",
    "reliability_diagram",
    "render",
    "risk_coverage",
    "worst_pairs",
    "write_report",
]
