from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sureshot.data import DataError, LabelledSet
from sureshot.incremental.session_data import SESSION_NAMES, load_sessions
from sureshot.incremental.sessions import Session, Sessions, session_classes

NAMES = ("ant", "bee", "cat", "dog", "eel")


def labelled(n: int, seed: int = 0) -> LabelledSet:
    """n rows of each class, the classes in turn; a row's first number is its place."""
    x = np.random.default_rng(seed).normal(size=(n * 5, 3))
    x[:, 0] = np.arange(len(x))
    return LabelledSet(torch.tensor(x, dtype=torch.float32), torch.arange(5).repeat(n), NAMES)


def drawn(**options: Any) -> Sessions:
    given: dict[str, Any] = {"base": ["cat", "ant"], "novel": [["eel"], ["bee"]], "shots": 2, "seed": 3}
    return Sessions.drawn(labelled(8), labelled(4, seed=1), **{**given, **options})


def test_drawn_sessions_have_their_classes_and_shots() -> None:
    sessions = drawn()
    assert [session.classes for session in sessions.sessions] == [(2, 0), (4,), (1,)]
    assert [len(session.rows) for session in sessions.sessions] == [16, 2, 2]
    for k, session in enumerate(sessions.sessions):
        rows = sessions.arriving(k)
        assert set(rows.y.tolist()) == set(session.classes)
        assert set(rows.session.tolist()) == {k}
        np.testing.assert_array_equal(rows.x[:, 0].astype(int), session.rows)


def test_asked_are_test_rows_of_all_classes_seen_and_dog_never_comes() -> None:
    sessions = drawn()
    for k, (classes, places) in enumerate([((0, 2), {0}), ((0, 2, 4), {0, 1}), ((0, 1, 2, 4), {0, 1, 2})]):
        rows = sessions.asked(k)
        assert set(rows.y.tolist()) == set(classes)
        assert len(rows.x) == 4 * len(classes)
        assert set(rows.session.tolist()) == places
    assert dict(zip(rows.y.tolist(), rows.session.tolist(), strict=True)) == {0: 0, 2: 0, 4: 1, 1: 2}


def test_the_seed_draws_shots_and_those_of_a_class_do_not_depend_on_the_others() -> None:
    assert drawn().sessions == drawn().sessions
    assert len({drawn(seed=seed).sessions[1].rows for seed in range(6)}) > 3
    assert drawn(novel=[["bee"], ["dog", "eel"]]).sessions[1].rows == drawn().sessions[2].rows


def test_rows_by_list_and_few_base_rows() -> None:
    sessions = drawn(rows={"eel": [4, 9, 14]}, base_shots=3)
    assert sessions.sessions[1].rows == (4, 9, 14)
    assert len(sessions.sessions[0].rows) == 6


def test_classes_are_permuted_by_the_seed() -> None:
    base, novel = session_classes(NAMES, 2, 1, seed=0)
    assert sorted([*base, *(name for part in novel for name in part)]) == list(NAMES)
    assert [len(part) for part in novel] == [1, 1, 1]
    assert (base, novel) == session_classes(NAMES, 2, 1, seed=0)
    assert any(session_classes(NAMES, 2, 1, seed=s)[0] != base for s in range(1, 5))
    assert session_classes(NAMES, 2, 1, n_sessions=2)[1] == session_classes(NAMES, 2, 1)[1][:2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"novel": [["beee"]]}, r"session 1 has class 'beee', which is not in the data \(did you mean 'bee'\?\)"),
        ({"novel": [["bee"], ["eel", "bee"]]}, "class 'bee' is in sessions 1 and 2: a class arrives once"),
        ({"novel": [["bee", "bee"]]}, "class 'bee' is twice in session 1"),
        ({"novel": [["ant"]]}, "class 'ant' is in sessions 0 and 1"),
        ({"novel": [[]]}, "session 1 has no classes"),
        ({"novel": ["bee"]}, "session 1 has the classes 'bee', expected a list of names"),
        ({"shots": 9}, "class 'eel' has 8 training rows, but 9 shots are asked for"),
        ({"shots": 0}, "shots=0, expected at least 1"),
        ({"base_shots": 0}, "base_shots=0, expected at least 1"),
        ({"rows": {"eel": [4, 999]}}, "session 1 has row number 999, expected 0 to 39"),
        ({"rows": {"eel": [4, 4]}}, "session 1 has row 4 more than once"),
        ({"rows": {"eel": [3]}}, "session 1 has row 3 of class 'dog', which is not among its classes"),
        ({"rows": {"eel": []}}, "session 1 has no row of its class eel"),
        ({"rows": {"owl": [3]}}, "the lists of rows name class 'owl', which is not in the data"),
        ({"out_of_scope": torch.ones(2, 4)}, "parts differ in the shape or type of their inputs: train"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        drawn(**options)


def test_parts_must_have_the_same_classes() -> None:
    one, other = labelled(2), labelled(2)
    other = LabelledSet(other.x, other.y, ("ant", "bee", "cat", "dog", "fox"))
    with pytest.raises(DataError, match="must have the same classes in the same order; only one has eel, fox"):
        Sessions(one, other, (Session((0,), (0,)),), "x", "")
    with pytest.raises(DataError, match="no sessions; expected at least the base session"):
        Sessions(one, one, (), "x", "")
    with pytest.raises(DataError, match="class number 7, expected 0 to 4"):
        Sessions(one, one, (Session((7,), (0,)),), "x", "")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((4, 2, 1), "ask for 6 classes, the data has 5"),
        ((0, 1, 1), "n_base=0"),
        ((2, 0, None), "way=0"),
        ((40, 2, None), "n_base=40 asks for more classes than there are: the data has 5"),
        ((6, 2, 1), "n_base=6 asks for more classes"),
        ((2, 1, -1), "n_sessions=-1, expected at least 0"),
    ],
)
def test_too_many_classes(sizes: tuple[int, int, int | None], message: str) -> None:
    with pytest.raises(DataError, match=message):
        session_classes(NAMES, *sizes)


def test_encoded_sessions_keep_everything_else() -> None:
    sessions = drawn(out_of_scope=torch.ones(2, 3)).embedded(lambda x: 2 * x[:, :2])
    assert sessions.sessions == drawn().sessions
    assert sessions.train.x.shape == (40, 2)
    assert sessions.out_of_scope is not None
    assert sessions.out_of_scope.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_rows_that_a_network_was_not_trained_on() -> None:
    sessions = drawn()
    assert sessions.arriving(0).unseen is None
    mask = torch.arange(len(sessions.train)) % 3 == 0
    told = replace(sessions, unseen=mask)
    rows = list(told.sessions[0].rows)
    assert told.arriving(0).unseen.tolist() == mask[rows].tolist()
    assert told.embedded(lambda x: 2 * x).unseen is mask
    assert told.asked(0).unseen is None
    for wrong in (mask[:-1], mask.long()):
        with pytest.raises(DataError, match="unseen must be a mask of the"):
            replace(sessions, unseen=wrong)


def test_digits() -> None:
    sessions = load_sessions("digits", seed=1)
    assert [len(session.classes) for session in sessions.sessions] == [4, 2, 2, 2]
    assert [len(session.rows) for session in sessions.sessions][1:] == [10, 10, 10]
    assert len(sessions.asked(3).y) + len(sessions.train) == 1797
    assert load_sessions("digits", seed=2).sessions != sessions.sessions
    assert len(load_sessions("digits", base_shots=3).sessions[0].rows) == 12


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    y = np.repeat([*NAMES, "none"], 10)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(60, 4)), y=y)
    np.savez(tmp_path / "test.npz", X=rng.normal(size=(12, 4)), y=[*NAMES, *NAMES, "none", "none"])
    return tmp_path


def test_own_embeddings(npz: Path) -> None:
    sessions = load_sessions("embeddings", npz, path="rows.npz", n_base=3, way=2, out_of_scope_label="none", shots=4)
    assert [len(session.classes) for session in sessions.sessions] == [3, 2]
    assert [len(session.rows) for session in sessions.sessions] == [21, 8]
    assert sessions.out_of_scope is not None
    assert sessions.out_of_scope.shape == (10, 4)
    listed = load_sessions(
        "embeddings",
        npz,
        path="rows.npz",
        test_path="test.npz",
        base_classes=["dog", "ant"],
        novel_classes=[["bee"], ["cat", "eel"]],
        out_of_scope_label="none",
    )
    assert [session.classes for session in listed.sessions] == [(3, 0), (1,), (2, 4)]
    assert len(listed.sessions[0].rows) == 20
    assert len(listed.asked(2).y) == 10
    assert listed.out_of_scope is not None
    assert listed.out_of_scope.shape == (2, 4)


def test_own_embeddings_of_two_files_that_differ_in_classes(npz: Path) -> None:
    """Rows that belong to no class may be in the test file only; classes that no session brings in one file only."""
    rng = np.random.default_rng(0)
    np.savez(npz / "known.npz", X=rng.normal(size=(50, 4)), y=np.repeat(NAMES, 10))
    np.savez(npz / "fewer.npz", X=rng.normal(size=(6, 4)), y=["bee", "cat", "dog", "fox", "none", "none"])
    options: dict[str, Any] = {"path": "known.npz", "test_path": "fewer.npz", "out_of_scope_label": "none"}
    listed = {"base_classes": ["bee", "dog"], "novel_classes": [["cat"]]}
    found = load_sessions("embeddings", npz, **options, **listed)
    assert found.train.class_names == ("bee", "cat", "dog")
    assert found.asked(1).y.tolist() == [0, 1, 2]
    assert found.out_of_scope is not None
    assert len(found.out_of_scope) == 2
    with pytest.raises(DataError, match=r"fewer.npz has no rows of eel, which the sessions bring"):
        load_sessions("embeddings", npz, **options, **listed | {"novel_classes": [["eel"]]})
    with pytest.raises(DataError, match=r"fewer.npz has no label 'other'; labels: bee"):
        load_sessions("embeddings", npz, **options | {"out_of_scope_label": "other"}, **listed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "gone.npz"}, "no file .*gone.npz: expected embeddings written by numpy.savez"),
        (
            {"path": "rows.npz"},
            r"give n_base and way \(n_sessions may be left out\), or base_classes and novel_classes",
        ),
        ({"path": "rows.npz", "n_base": 2}, "give n_base and way"),
        ({"path": "rows.npz", "n_base": 2, "way": 1, "base_classes": ["ant"]}, "give n_base and way"),
        ({"path": "rows.npz", "n_base": 2, "way": 1, "out_of_scope_label": "oos"}, "has no label 'oos'"),
        ({"path": "rows.npz", "n_base": 2, "way": 1, "test_fraction": 1.0}, "test_fraction=1, expected more than 0"),
        ({"path": "rows.npz", "n_base": 2, "way": 1, "target": "label"}, "has no array 'label'"),
        ({"path": "rows.npz", "novel_classes": [["ant"], "bee"]}, "novel_classes must be a list of lists of"),
        ({"n_base": 2, "way": 1}, "embeddings needs the option path"),
    ],
)
def test_own_embeddings_that_do_not_fit(npz: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_sessions("embeddings", npz, **options)


def test_names_and_options_are_checked() -> None:
    with pytest.raises(DataError, match=r"no sessions called 'digit' \(did you mean 'digits'\?\); names: digits"):
        load_sessions("digit")
    with pytest.raises(DataError, match="digits has no option 'shot'"):
        load_sessions("digits", shot=3)
    with pytest.raises(DataError, match="digits: seed must be a whole number, got '1'"):
        load_sessions("digits", seed="1")
    assert "clinc150" in SESSION_NAMES


@pytest.mark.real_data
def test_clinc150() -> None:
    sessions = load_sessions("clinc150")
    assert [len(session.classes) for session in sessions.sessions] == [100] + 10 * [5]
    assert [len(session.rows) for session in sessions.sessions] == [10000] + 10 * [25]
    assert sessions.asked(10).x.shape == (4500, 384)
    assert sessions.out_of_scope is not None
    fewer = load_sessions("clinc150", test_shots=2).asked(1)
    assert np.bincount(fewer.y)[fewer.y].tolist() == 210 * [2]
    with pytest.raises(DataError, match="test_shots=0, expected at least 1"):
        load_sessions("clinc150", test_shots=0)


@pytest.mark.real_data
def test_miniimagenet32_by_its_lists() -> None:
    sessions = load_sessions("miniimagenet32")
    assert [len(session.classes) for session in sessions.sessions] == [60] + 8 * [5]
    assert [len(session.rows) for session in sessions.sessions] == [12000] + 8 * [25]
    assert sessions.asked(8).x.shape == (10000, 3, 32, 32)
    assert sessions.sessions[1].classes == (60, 61, 62, 63, 64)


def test_rows_are_not_tested_on_themselves(npz: Path) -> None:
    with pytest.raises(DataError, match="test_path is the file of the rows to learn from"):
        load_sessions("embeddings", npz, path="rows.npz", test_path="./rows.npz", n_base=3, way=2)
