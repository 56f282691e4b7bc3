"""Few-shot data by name; CLINC150, folders, embeddings; transfer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sureshot.data import FEW_SHOT_NAMES, DataError, load_few_shot


def test_unknown_names_and_options(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="did you mean 'omniglot-choice'"):
        load_few_shot("omniglot-choise", tmp_path)
    with pytest.raises(DataError, match=r"no option 'rotation' \(did you mean 'rotations'"):
        load_few_shot("omniglot-choice", tmp_path, rotation=True)
    with pytest.raises(DataError, match="options: none"):
        load_few_shot("miniimagenet32", tmp_path, side=84)
    with pytest.raises(DataError, match="folder needs the option path"):
        load_few_shot("folder", tmp_path)
    with pytest.raises(DataError, match="transfer needs the option novel"):
        load_few_shot("transfer", tmp_path, base="cub")


@pytest.mark.parametrize(
    "name", [name for name in FEW_SHOT_NAMES if name not in ("folder", "embeddings", "texts", "transfer")]
)
def test_every_name_says_its_layout_and_where_to_get_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SURESHOT_DATA", raising=False)
    layout = r".*expected .*(github\.com|image-net\.org|data\.caltech\.edu)[^\n]*$"
    with pytest.raises(DataError, match=r"^cannot find \S+, as no data folder is set: .*SURESHOT_DATA" + layout):
        load_few_shot(name)
    with pytest.raises(DataError, match=rf"^no (file|folder) {re.escape(str(tmp_path))}\S+: {layout}"):
        load_few_shot(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("embeddings", {"path": 3}, "embeddings: path must be text or a path, got 3"),
        ("embeddings", {"fractions": 3}, "fractions must be a list of numbers, got 3"),
        ("embeddings", {"fractions": ["a", 1, 1]}, "each entry of fractions must be a number, got 'a'"),
        ("embeddings", {"fractions": np.array(0.5)}, "fractions must be a list of numbers"),
        ("embeddings", {"fractions": [1, 1]}, "fractions=.*, expected three positive numbers"),
        ("embeddings", {"seed": "a"}, "seed must be a whole number, got 'a'"),
        ("embeddings", {"seed": True}, "seed must be a whole number, got True"),
        ("embeddings", {"seed": -1}, "seed=-1, expected a whole number, 0 or more"),
        ("embeddings", {"target": 3}, "target must be text, got 3"),
        ("embeddings", {"val_classes": "12", "test_classes": ["0"]}, "val_classes must be a list of text or"),
        ("embeddings", {"val_classes": [None], "test_classes": ["0"]}, "val_classes must be a list of text or"),
        ("embeddings", {"out_of_scope_label": [1]}, r"out_of_scope_label must be text or a whole number, got \[1\]"),
        ("folder", {"path": ".", "side": "x"}, "folder: side must be a whole number, got 'x'"),
        ("folder", {"path": ".", "side": 28.0}, "side must be a whole number, got 28.0"),
        ("folder", {"path": ".", "grey": "no"}, "grey must be true or false, got 'no'"),
        ("omniglot-emnist", {"part": ["test"]}, r"part must be text, got \['test'\]"),
        ("transfer", {"base": "cub", "novel": 3}, "novel must be text, got 3"),
        ("transfer", {"base": "cub", "novel": "cub", "base_options": 3}, "base_options must be a table of options"),
        ("transfer", {"base": "cub", "novel": "cub", "base_options": {"root": "."}}, "cub has no option 'root'"),
        ("transfer", {"base": "cub", "novel": "cub", "base_options": {1: "."}}, "cub has no option 1"),
    ],
)
def test_values_that_an_option_cannot_have(tmp_path: Path, name: str, options: dict[str, Any], match: str) -> None:
    if name == "embeddings":
        options = {"path": _embeddings(tmp_path, np.arange(5)), **options}
    with pytest.raises(DataError, match=match):
        load_few_shot(name, tmp_path, **options)


def test_names_and_roots_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no few-shot data called 3"):
        load_few_shot(3, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no few-shot data called"):
        load_few_shot(["cub"], tmp_path)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="folder: root must be text or a path, got 3"):
        load_few_shot("folder", 3, path="own")  # type: ignore[arg-type]


def _folders(root: Path, classes: str, colour: bool = False) -> None:
    for value, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        shape = (10, 10, 3) if colour else (10, 10)
        Image.fromarray(np.full(shape, 10 * value, np.uint8)).save(root / name / "1.png")


def test_a_folder_shared_out_by_seed(tmp_path: Path) -> None:
    _folders(tmp_path / "own", "abcdefghij")
    data = load_few_shot("folder", tmp_path, path="own", side=10, grey=True, fractions=(0.5, 0.2, 0.3), seed=4)
    assert [part.n_classes for part in data.parts.values()] == [5, 2, 3]
    assert sorted(name for part in data.parts.values() for name in part.class_names) == list("abcdefghij")
    for part in data.parts.values():
        assert part.x[:, 0, 0, 0].tolist() == [10 * "abcdefghij".index(part.class_names[k]) for k in part.y.tolist()]
    again = load_few_shot("folder", path=tmp_path / "own", side=10, grey=True, fractions=(0.5, 0.2, 0.3), seed=4)
    assert again.test.class_names == data.test.class_names


def test_a_folder_with_its_own_split(tmp_path: Path) -> None:
    for part, classes in {"train": "abc", "val": "de", "test": "fg"}.items():
        _folders(tmp_path / part, classes, colour=True)
    data = load_few_shot("folder", path=tmp_path, side=5)
    assert [part.class_names for part in data.parts.values()] == [("a", "b", "c"), ("d", "e"), ("f", "g")]
    assert data.train.x.shape == (3, 3, 5, 5)


def _embeddings(root: Path, labels: np.ndarray, dtype: type = np.float64) -> Path:
    path = root / "own.npz"
    np.savez(path, X=np.arange(2.0 * len(labels)).reshape(-1, 2).astype(dtype), y=labels)
    return path


def test_embeddings_by_lists_and_by_seed(tmp_path: Path) -> None:
    _embeddings(tmp_path, np.array(["ant", "bee", "cat", "dog", "ant", "?"]))
    listed = load_few_shot(
        "embeddings", tmp_path, path="own.npz", val_classes=["dog"], test_classes=["bee"], out_of_scope_label="?"
    )
    assert listed.train.class_names == ("ant", "cat")
    assert listed.train.x.tolist() == [[0, 1], [4, 5], [8, 9]]
    assert listed.train.x.dtype == torch.float32
    assert listed.train.y.tolist() == [0, 1, 0]
    assert listed.test.class_names == ("bee",)
    assert listed.out_of_scope is not None
    assert listed.out_of_scope.tolist() == [[10, 11]]
    arrays = load_few_shot(
        "embeddings", tmp_path, path="own.npz", val_classes=np.array(["dog", "cat"]), test_classes=("?", "bee")
    )
    assert [part.class_names for part in arrays.parts.values()] == [("ant",), ("dog", "cat"), ("?", "bee")]
    by_seed = load_few_shot("embeddings", tmp_path, path="own.npz", seed=1)
    assert sum(part.n_classes for part in by_seed.parts.values()) == 5
    assert by_seed.out_of_scope is None


def test_embeddings_with_numbers_as_labels(tmp_path: Path) -> None:
    _embeddings(tmp_path, np.array([0, 10, 2, -1, 10]), np.float16)
    data = load_few_shot(
        "embeddings", tmp_path, path="own.npz", val_classes=[0], test_classes=["2"], out_of_scope_label=-1
    )
    assert [part.class_names for part in data.parts.values()] == [("10",), ("0",), ("2",)]
    assert data.train.x.tolist() == [[2, 3], [8, 9]]


def test_embeddings_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*own\.npz"):
        load_few_shot("embeddings", tmp_path, path="own.npz")
    path = _embeddings(tmp_path, np.array(["ant", "bee", "cat"]))
    with pytest.raises(DataError, match="did you mean 'bee'"):
        load_few_shot("embeddings", path=path, val_classes=["beee"], test_classes=["cat"])
    with pytest.raises(DataError, match="name val_classes and test_classes together"):
        load_few_shot("embeddings", path=path, test_classes=["cat"])
    with pytest.raises(DataError, match="no label '-1'"):
        load_few_shot("embeddings", path=path, out_of_scope_label="-1")
    np.savez(path, X=np.array([[1.0], [np.nan]]), y=np.array([0, 1]))
    with pytest.raises(DataError, match="NaN or infinite numbers in 1 of 2 rows"):
        load_few_shot("embeddings", path=path)
    np.savez(path, X=np.zeros((3, 1)))
    with pytest.raises(DataError, match="has no labels"):
        load_few_shot("embeddings", path=path)


def test_transfer(tmp_path: Path) -> None:
    _folders(tmp_path / "one", "abcde")
    _folders(tmp_path / "two", "uvwxyz")
    one = {"path": str(tmp_path / "one"), "side": 8}
    two = {"path": str(tmp_path / "two"), "side": 8}
    data = load_few_shot("transfer", base="folder", novel="folder", base_options=one, novel_options=two)
    source = load_few_shot("folder", **one)
    target = load_few_shot("folder", **two)
    assert data.train.class_names == source.train.class_names
    assert data.val.class_names == target.val.class_names
    assert data.test.class_names == target.test.class_names
    everything = load_few_shot(
        "transfer", base="folder", novel="folder", base_options=one, novel_options=two, all_base_classes=True
    )
    assert sorted(everything.train.class_names) == list("abcde")
    with pytest.raises(DataError, match=r"train \(3, 8, 8\).*\(3, 9, 9\)"):
        load_few_shot("transfer", base="folder", novel="folder", base_options=one, novel_options={**two, "side": 9})


@pytest.mark.real_data
def test_clinc150_intents_are_held_out() -> None:
    data = load_few_shot("clinc150")
    assert [part.n_classes for part in data.parts.values()] == [60, 15, 75]
    assert (data.test.class_sizes == 150).all()
    names = [set(part.class_names) for part in data.parts.values()]
    assert len(names[0] | names[1] | names[2]) == 150
    assert data.out_of_scope is not None
    assert data.out_of_scope.shape == (1000, 384)
    # The test intents depend on the seed and the size of the base, not on how much of the base validates.
    assert load_few_shot("clinc150", n_val=5).test.class_names == data.test.class_names
    assert load_few_shot("clinc150", seed=1).test.class_names != data.test.class_names
    with pytest.raises(DataError, match="expected 0 < n_val < n_base < 150"):
        load_few_shot("clinc150", n_base=15)


@pytest.mark.real_data
def test_transfer_of_real_characters_by_the_general_way() -> None:
    general = load_few_shot(
        "transfer", base="omniglot-lake", novel="omniglot-choice", base_options={"rotations": False}
    )
    special = load_few_shot("omniglot-choice")
    assert torch.equal(general.test.x, special.test.x)
    assert general.train.n_classes < 964
    with pytest.raises(DataError, match="classes of omniglot-lake that are to be new are among those of omniglot-vin"):
        load_few_shot("transfer", base="omniglot-vinyals", novel="omniglot-lake")
