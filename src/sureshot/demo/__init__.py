"""What ``sureshot demo`` shows, from data that ships with scikit-learn: no files and no network are needed.

`run_demo` is the study and its report; the classifiers beside ours and `measure`, which treats all of them alike, serve
the experiments of the repository as well.
"""

from sureshot.demo.comparison import HIGHER_IS_BETTER, METRICS, Split, means_and_errors, measure, outlier_score_of
from sureshot.demo.digits import DemoResult, run_demo
from sureshot.demo.peers import TemperatureScaledLogisticRegression, logistic_regression, sklearn_gp

__all__ = [
    "HIGHER_IS_BETTER",
    "METRICS",
    "DemoResult",
    "Split",
    "TemperatureScaledLogisticRegression",
    "logistic_regression",
    "means_and_errors",
    "measure",
    "outlier_score_of",
    "run_demo",
    "sklearn_gp",
]
