"""The data root: option before environment, and messages that say what to set."""

from __future__ import annotations

from pathlib import Path

import pytest

from sureshot.data import DataError, data_file, data_root


def test_the_option_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.setenv("SURESHOT_DATA", str(tmp_path / "a"))
    assert data_root() == tmp_path / "a"
    assert data_root(tmp_path / "b") == tmp_path / "b"


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_set_names_the_variable_and_the_file(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SURESHOT_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("SURESHOT_DATA", value)
    with pytest.raises(
        DataError, match=r"^cannot find uci/iris\.csv, as no data folder is set.*SURESHOT_DATA.*--data$"
    ):
        data_file("uci/iris.csv")


def test_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURESHOT_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"^SURESHOT_DATA names the folder .*gone, which does not exist"):
        data_root()


def test_the_layout_is_said_wherever_the_file_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SURESHOT_DATA", raising=False)
    layout = "expected three arrays, from example.org"
    for root, problem in {
        None: r"^cannot find a\.npz, as no data folder is set: ",
        tmp_path / "gone": r"^cannot find a\.npz, as the data folder is .*gone, which does not exist: ",
        tmp_path: r"^no file .*a\.npz: add it, or set SURESHOT_DATA",
    }.items():
        with pytest.raises(DataError, match=rf"{problem}.*; {layout}$"):
            data_file("a.npz", root, layout)


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="is not a folder"):
        data_root(tmp_path / "file")


def test_a_file_that_the_root_lacks(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^no file .*clinc150_minilm\.npz: add it"):
        data_file("clinc150_minilm.npz", tmp_path)
    (tmp_path / "there.npz").write_bytes(b"x")
    assert data_file("there.npz", tmp_path) == tmp_path / "there.npz"
