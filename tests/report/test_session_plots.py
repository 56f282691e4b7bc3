from __future__ import annotations

import numpy as np

from sureshot.report.content import Measured
from sureshot.report.plots import figure_to_data_uri
from sureshot.report.session_plots import session_lines, session_matrices

NAN = float("nan")


def test_a_panel_for_each_score_and_a_line_for_each_method() -> None:
    accuracy = {
        "one $ two": [Measured(0.9, 0.01), Measured(0.8, NAN)],
        "other": [Measured(0.7, NAN), Measured(0.6, NAN)],
    }
    forgetting = {"one $ two": [Measured(NAN, NAN), Measured(0.1, 0.0)]}
    figure = session_lines({"accuracy": accuracy, "forgetting": forgetting, "NLL": accuracy})
    first, second, third, hidden = figure.axes
    assert [axes.get_title(loc="left") for axes in (first, second, third)] == ["accuracy", "forgetting", "NLL"]
    assert [len(axes.lines) for axes in (first, second, third)] == [2, 1, 2]
    np.testing.assert_array_equal(first.lines[0].get_ydata(), [0.9, 0.8])
    assert not hidden.axison
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [r"one \$ two", "other"]
    assert figure_to_data_uri(figure).startswith("data:image/png")


def test_matrices_share_their_scale() -> None:
    low, high = np.array([[0.5, np.nan], [0.3, 0.4]]), np.array([[1.0, np.nan], [0.9, 0.8]])
    figure = session_matrices({"low": low, "high": high})
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert [image.get_clim() for image in images] == [images[0].get_clim()] * 2
    assert images[0].get_clim()[0] <= 0.3
    assert figure_to_data_uri(figure).startswith("data:image/png")
    second, scale = (figure.axes[place].get_position() for place in (1, -1))
    assert scale.x0 - second.x1 < 0.2 * second.width  # beside them


def test_one_session_of_one_method() -> None:
    assert len(session_lines({"accuracy": {"only": [Measured(0.5, NAN)]}}).axes) == 1
    assert figure_to_data_uri(session_matrices({"only": np.array([[0.5]])})).startswith("data:image/png")
