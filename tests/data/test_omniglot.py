"""Omniglot in both layouts, its splits, and transfer to CHoiCe and EMNIST, on small copies of the layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sureshot.data import DataError, load_few_shot
from sureshot.data.choice import load_choice
from sureshot.data.omniglot import load_omniglot

# Part, alphabet, character, number in the file's name. Numbers are not in the order of the alphabets' names.
CHARACTERS = [
    ("images_background", "Tagalog", "character01", 1),
    ("images_background", "Tagalog", "character02", 2),
    ("images_background", "Greek", "character01", 3),
    ("images_background", "Latin", "character01", 4),
    ("images_evaluation", "Angelic", "character01", 5),
]


def _drawing(number: int, drawer: int) -> np.ndarray:
    """A bar of black ink on white, its place and length telling character and drawer."""
    pixels = np.full((105, 105), 255, np.uint8)
    pixels[15 * number : 15 * number + 15, : 30 * drawer] = 0
    return pixels


def _archive(root: Path) -> None:
    for part, alphabet, character, number in CHARACTERS:
        folder = root / part / alphabet / character
        folder.mkdir(parents=True)
        for drawer in (1, 2):
            image = Image.fromarray(_drawing(number, drawer)).convert("1")
            image.save(folder / f"{number:04d}_{drawer:02d}.png")


def _npz(root: Path, **changes: np.ndarray) -> None:
    names = np.array(["Angelic", "Greek", "Latin", "Tagalog"])
    alphabet = np.array([3, 3, 1, 2, 0], dtype=np.uint8)
    images = np.arange(10, dtype=np.uint8)[:, None, None] * np.ones((1, 28, 28), np.uint8)
    arrays = {
        "images": images,
        "label": np.repeat(np.arange(5), 2).astype(np.int16),
        "alphabet": np.repeat(alphabet, 2),
        "alphabet_names": names,
        "class_alphabet": alphabet,
        "class_character": np.array([row[2] for row in CHARACTERS]),
        "class_is_evaluation": np.array([row[0] == "images_evaluation" for row in CHARACTERS]),
    }
    np.savez(root / "omniglot28.npz", **{**arrays, **changes})


def _vinyals_csv(root: Path) -> None:
    rows = ["label,vinyals_split", "0,train", "1,val", "2,train", "3,test", "4,train"]
    (root / "omniglot_classes.csv").write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("place", ["", "omniglot"])
def test_the_archive(tmp_path: Path, place: str) -> None:
    _archive(tmp_path / place)
    found = load_omniglot(tmp_path, side=21)
    assert found.numbers.tolist() == [0, 1, 2, 3, 4]
    assert found.images.class_names == tuple(f"{row[1]}/{row[2]}" for row in CHARACTERS)
    assert found.images.x.shape == (10, 1, 21, 21)
    assert found.is_evaluation.tolist() == [False, False, False, False, True]
    # 105 to 21: five pixels become one, so the bar of character 3 covers rows 9 to 11, and 6 columns for each drawer.
    for drawer, image in enumerate(found.images.x[found.images.y == 2, 0], start=1):
        assert (image[10, 1 : 6 * drawer - 1] > 250).all()
        assert image[10, 6 * drawer + 2 :].max() < 5
        assert image[:8].max() < 5
        assert image[13:].max() < 5


def test_both_layouts_give_the_same_splits(tmp_path: Path) -> None:
    _archive(tmp_path / "archive")
    (tmp_path / "npz").mkdir()
    _npz(tmp_path / "npz")
    for root in (tmp_path / "archive", tmp_path / "npz"):
        _vinyals_csv(root)
        data = load_few_shot("omniglot-vinyals", root, rotations=False)
        assert data.train.class_names == ("Tagalog/character01", "Greek/character01", "Angelic/character01")
        assert data.val.class_names == ("Tagalog/character02",)
        assert data.test.class_names == ("Latin/character01",)
        assert load_omniglot(root).non_latin().n_classes == 4
        lake = load_few_shot("omniglot-lake", root, rotations=False, val_alphabets=1, seed=3)
        assert lake.test.class_names == ("Angelic/character01",)
        alphabets = [{name.split("/")[0] for name in part.class_names} for part in (lake.train, lake.val)]
        assert len(alphabets[1]) == 1
        assert not alphabets[0] & alphabets[1]


def test_turned_characters_stay_on_one_side(tmp_path: Path) -> None:
    _npz(tmp_path)
    _vinyals_csv(tmp_path)
    data = load_few_shot("omniglot-vinyals", tmp_path)
    assert [part.n_classes for part in data.parts.values()] == [12, 4, 4]
    characters = [{"/".join(n.split("/")[:2]) for n in part.class_names} for part in data.parts.values()]
    assert not characters[0] & characters[1] | characters[0] & characters[2] | characters[1] & characters[2]
    assert "with rotations" in data.description


def test_the_list_as_texts(tmp_path: Path) -> None:
    _archive(tmp_path / "omniglot")
    lists = tmp_path / "omniglot" / "splits" / "vinyals"
    lists.mkdir(parents=True)
    with pytest.raises(DataError, match=r"no file .*train\.txt"):
        load_few_shot("omniglot-vinyals", tmp_path)
    parts = {"train": (0, 2), "val": (1,), "test": (3,)}
    for part, rows in parts.items():
        lines = [f"{CHARACTERS[i][1]}/{CHARACTERS[i][2]}/rot{turn:03d}" for i in rows for turn in (0, 90)]
        (lists / f"{part}.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="does not say where Angelic/character01"):
        load_few_shot("omniglot-vinyals", tmp_path)
    (lists / "test.txt").write_text("Latin/character01/rot000\nAngelic/character01/rot270\n")
    data = load_few_shot("omniglot-vinyals", tmp_path, rotations=False)
    assert data.test.class_names == ("Latin/character01", "Angelic/character01")


def test_missing_and_broken_layouts_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"characterNN/NNNN_MM\.png .* github\.com/brendenlake/omniglot"):
        load_omniglot(tmp_path)
    _archive(tmp_path)
    with pytest.raises(DataError, match="no list of the Vinyals split"):
        load_few_shot("omniglot-vinyals", tmp_path)
    with pytest.raises(DataError, match="val_alphabets=3"):
        load_few_shot("omniglot-lake", tmp_path, val_alphabets=3)
    (tmp_path / "omniglot_classes.csv").write_text("number,part\n1,train\n")
    with pytest.raises(DataError, match=r"has columns number, part and 1 rows.*label and vinyals_split"):
        load_few_shot("omniglot-vinyals", tmp_path)
    (tmp_path / "omniglot_classes.csv").write_text("")
    with pytest.raises(DataError, match=r"omniglot_classes\.csv cannot be read as CSV"):
        load_few_shot("omniglot-vinyals", tmp_path)
    (tmp_path / "images_background" / "Greek" / "character02").mkdir()
    with pytest.raises(DataError, match=r"no drawing .* in .*Greek.*character02"):
        load_omniglot(tmp_path)
    (tmp_path / "images_background" / "Greek" / "character02" / "odd.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"odd\.png: expected a name like"):
        load_omniglot(tmp_path)


def test_an_npz_of_other_things(tmp_path: Path) -> None:
    np.savez(tmp_path / "omniglot28.npz", images=np.zeros((2, 28, 28), np.uint8))
    with pytest.raises(DataError, match="no array label"):
        load_omniglot(tmp_path)
    (tmp_path / "omniglot28.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="cannot be read as NPZ"):
        load_omniglot(tmp_path)
    _npz(tmp_path)
    with pytest.raises(DataError, match="side=32 needs the archive"):
        load_omniglot(tmp_path, side=32)


def _choice(root: Path) -> None:
    names = np.array(list("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    label = np.repeat(np.arange(62), 3).astype(np.uint8)
    ambiguous = np.isin(label, [24, 50]) & (np.arange(186) % 3 == 0)
    images = np.repeat(label[:, None, None] + 100, 28, axis=1).repeat(28, axis=2).astype(np.uint8)
    binary = np.zeros((186, 28, 28), bool)
    binary[:, 0] = True
    np.savez(root / "choice62.npz", images=images, binary=binary, label=label, ambiguous=ambiguous, class_names=names)


def test_choice(tmp_path: Path) -> None:
    _npz(tmp_path)
    with pytest.raises(DataError, match=r"CHoiCe-Dataset, doi 10\.25911"):
        load_few_shot("omniglot-choice", tmp_path)
    _choice(tmp_path)
    assert np.bincount(load_choice(tmp_path).y).tolist() == [
        2 if name in "oO" else 3 for name in load_choice(tmp_path).class_names
    ]
    data = load_few_shot("omniglot-choice", tmp_path)
    assert data.train.n_classes == 4
    assert data.train.class_names[0] == "Tagalog/character01"
    assert data.val.class_names == tuple(n for n in "02468acegikmqsuwyACEGIKMQSUWY")
    assert data.test.class_names == tuple(n for n in "13579bdfhjlnprtvxzBDFHJLNPRTVXZ")
    assert int(data.test.x[0, 0, 0, 0]) == 101
    binary = load_few_shot("omniglot-choice", tmp_path, binary=True, rotations=True)
    assert binary.train.n_classes == 16
    assert binary.test.n_classes == 31
    assert set(binary.test.x.unique().tolist()) == {0, 255}


@pytest.mark.real_data
def test_the_real_sets() -> None:
    data = load_few_shot("omniglot-choice")
    assert [part.n_classes for part in data.parts.values()] == [1597, 29, 31]
    assert (data.train.class_sizes == 20).all()
    assert data.val.class_sizes.min() == 40
    assert data.train.x.shape[1:] == (1, 28, 28)
    vinyals = load_few_shot("omniglot-vinyals", rotations=False)
    assert [part.n_classes for part in vinyals.parts.values()] == [1028, 172, 423]
    lake = load_few_shot("omniglot-lake")
    assert lake.train.n_classes + lake.val.n_classes == 4 * 964
    assert lake.test.n_classes == 4 * 659
