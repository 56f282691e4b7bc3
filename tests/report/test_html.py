"""The page: complete, self-contained, safe against hostile names, never half-written."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from sureshot.metrics import auroc_unknown, balanced_accuracy, summarise
from sureshot.report import Measured, Predictions, Report, Table, environment, render, write_report

VOID = {"meta", "img", "br", "hr", "input", "link", "wbr"}


class Page(HTMLParser):
    """Tags, attributes, and text of a page; unbalanced tags are an error."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.identifiers: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(source)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        for key, value in attrs:
            if key in ("src", "href", "action", "data", "srcset"):
                self.addresses.append(value or "")
            if key.startswith("on"):
                self.handlers.append(key)
            if key == "id":
                self.identifiers.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def digits() -> tuple[Predictions, np.ndarray]:
    """Logistic regression on 5 labels of each of 7 digits, and its predictions of all ten."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    train = np.concatenate([order[data.target[order] == c][:5] for c in range(7)])
    test = np.setdiff1d(order, train)[:400]
    model = LogisticRegression(C=0.01, max_iter=1000).fit(data.data[train], data.target[train])
    score = -model.decision_function(data.data[test]).max(axis=1)
    predictions = Predictions(
        model.predict_proba(data.data[test]),
        model.classes_,
        data.target[test],
        outlier_score=score,
        images=data.images[test],
        row_names=test,
    )
    return predictions, data.target[test] < 7


def asks_for_nothing(source: str) -> None:
    """The page needs no other file and runs no script."""
    page = Page(source)
    assert page.addresses
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert not {"script", "link", "iframe", "object", "embed", "form"} & set(page.tags)
    assert page.handlers == []
    assert "url(" not in source
    assert "default-src 'none'" in source
    for address in page.addresses:
        assert imread(BytesIO(base64.b64decode(address.split(",")[1]))).size > 0


def test_full_report(tmp_path: Path, digits: tuple[Predictions, np.ndarray]) -> None:
    predictions, known = digits
    report = Report(
        "Digits",
        "Seven known, three unknown.",
        Table(("method", "NLL"), (("ours", Measured(0.2, 0.01)), ("theirs", 0.3)), (None, "lower"), "5 seeds"),
        predictions,
        [-30.0, -20.0, -19.5],
        {"kernel": "rbf", "output scale": 12.3456},
        environment(),
        "sureshot demo",
    )
    path = write_report(tmp_path / "new" / "folder", report)
    assert path == tmp_path / "new" / "folder" / "report.html"
    assert sorted(file.name for file in path.parent.iterdir()) == ["confusion.csv", "report.html"]
    source = path.read_text(encoding="utf-8")
    asks_for_nothing(source)
    page = Page(source)
    sections = ["summary", "classes", "confusions", "uncertain", "outlying", "model", "environment"]
    assert page.identifiers == sections
    for heading in ("Reliability diagram", "Confidence histogram", "Known and unknown", "Trace"):
        assert heading in page.text
    scores = summarise(predictions.probabilities[known], predictions.y[known])  # type: ignore[index]
    outliers = np.asarray(predictions.outlier_score)
    for value in (scores.accuracy, scores.nll, scores.brier, scores.ece):
        assert f"{value:.3f}" in page.text
    assert f"{balanced_accuracy(predictions.probabilities[known], predictions.y[known]):.3f}" in page.text  # type: ignore[index]
    assert "MCE" not in page.text
    write_report(path.parent, Report("Another", "Of rows without labels."))
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    assert f"{auroc_unknown(outliers[known], outliers[~known]):.3f}" in page.text
    assert "0.200 ± 0.010" in page.text
    assert "12.346" in page.text
    assert "sureshot demo" in page.text
    assert str(np.asarray(predictions.row_names)[outliers.argmax()]) in page.text


HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "a" * 500 + "<b>"]


def test_hostile_text_is_only_text() -> None:
    probabilities = np.full((8, 4), 0.1) + 0.6 * np.eye(4)[[0, 1, 2, 3, 1, 2, 3, 0]]
    labels = np.array(HOSTILE, dtype=object)[[0, 1, 2, 3, 0, 1, 2, 3]]
    bad = HOSTILE[0]
    report = Report(
        HOSTILE[1],
        HOSTILE[0],
        Table((bad, "x"), ((HOSTILE[1], 1.0),), note=bad),
        Predictions(probabilities, HOSTILE, labels, outlier_score=np.arange(8), row_names=[bad] * 8),
        [1.0, 2.0],
        {bad: HOSTILE[1]},
        {HOSTILE[1]: bad},
        f"sureshot evaluate {bad}",
    )
    page = Page(render(report))
    assert "script" not in page.tags
    assert page.tags.count("b") == 5  # the values of the tiles only
    assert page.handlers == []
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text


def test_every_part_is_optional() -> None:
    page = Page(render(Report("Nothing yet")))
    assert "Nothing yet" in page.text
    assert page.identifiers == []
    assert "img" not in page.tags


def test_without_labels() -> None:
    page = Page(render(Report("Fit", predictions=Predictions([[0.9, 0.1], [0.4, 0.6]], ["cat", "dog"]))))
    assert page.identifiers == ["uncertain"]
    assert "2 rows without labels; mean confidence 75.0%" in page.text
    assert "Reliability" not in page.text


def test_all_rows_of_unknown_classes() -> None:
    predictions = Predictions([[0.9, 0.1]], ["cat", "dog"], ["bird"], outlier_score=[2.0])
    page = Page(render(Report("Unknown only", predictions=predictions)))
    assert "1 rows, all of classes that the model does not know; mean confidence 90.0%" in page.text
    assert page.identifiers == ["uncertain", "outlying"]
    assert "bird" in page.text
    assert "(unknown)" in page.text


def test_bars_of_confusions_are_shares_of_the_class() -> None:
    y = ["cat"] * 10 + ["dog"] * 40
    taken = [[0.1, 0.9]] * 5 + [[0.9, 0.1]] * 5 + [[0.9, 0.1]] * 8 + [[0.1, 0.9]] * 32
    source = render(Report("Bars", predictions=Predictions(taken, ["cat", "dog"], y)))
    assert "too sure by 16.0 points" in source
    assert [source.index(f"width: {share}%") > 0 for share in (50, 20)] == [True, True]


def test_names_keep_their_direction_to_themselves() -> None:
    source = render(Report("Right to left", predictions=Predictions([[0.9, 0.1]], ["שלום (א)", "dog"], ["dog"])))
    assert source.count("<bdi>שלום (א)</bdi>") == 3  # the class, the confusion, the row
    assert "unicode-bidi: plaintext" in source


def test_no_confusion() -> None:
    page = Page(render(Report("Perfect", predictions=Predictions(0.2 + 0.4 * np.eye(3), [0, 1, 2], [0, 1, 2]))))
    assert "too modest by 40.0 points" in page.text
    assert "None: every row of a known class was right." in page.text


def test_one_class() -> None:
    page = Page(render(Report("One", predictions=Predictions([[1.0]], ["only"], ["only"]))))
    assert "only" in page.text


def test_best_cells_are_bold() -> None:
    table = Table(
        ("method", "accuracy", "NLL", "seconds"),
        (
            ("a", 0.9, Measured(0.3, 0.1), 2),
            ("b", 0.8, Measured(0.2, 0.1), None),
            ("c", float("nan"), None, 1),
        ),
        (None, "higher", "lower", None),
    )
    source = render(Report("Table", summary=table))
    assert source.count('class="number best"') == 2
    assert 'best">0.900<' in source
    assert 'best">0.200 ± 0.100<' in source


def test_rows_are_sorted_and_limited() -> None:
    outlier = np.random.default_rng(0).permutation(50).astype(float)
    names = [f"row{int(score):02d}" for score in outlier]
    predictions = Predictions(np.full((50, 2), 0.5), ["a", "b"], outlier_score=outlier, row_names=names)
    source = render(Report("Rows", predictions=predictions))
    outlying = source[source.index('id="outlying"') :]
    positions = [outlying.index(f"row{i}") for i in range(49, 37, -1)]
    assert positions == sorted(positions)
    assert "row37" not in outlying


def test_replaces_an_older_report(tmp_path: Path) -> None:
    write_report(tmp_path, Report("First"))
    path = write_report(tmp_path, Report("Second"))
    assert "Second" in path.read_text(encoding="utf-8")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()  # cannot be replaced by a file
    with pytest.raises(OSError):
        write_report(tmp_path, Report("Fails"))
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(NotADirectoryError, match="name a folder"):
        write_report(tmp_path / "taken", Report("Refused"))
    assert (tmp_path / "taken").read_text() == "mine"
