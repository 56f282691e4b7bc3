"""mini-ImageNet, CUB and CIFAR-FS on small copies of their layouts."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sureshot.data import DataError, data_root, load_few_shot
from sureshot.data.cub import load_cub
from sureshot.data.mini_imagenet import load_miniimagenet32


def _photograph(path: Path, value: int, side: tuple[int, int] = (12, 12)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.zeros((*side, 3), np.uint8)
    pixels[:, :] = (value, 2 * value, 0)
    Image.fromarray(pixels).save(path)


def _mini(root: Path, by_class: bool = False) -> Path:
    place = root / "miniimagenet"
    for part, classes in {"train": (2, 1), "val": (3,), "test": (4,)}.items():
        rows = [(f"n{k}_{i}.png", f"n{k}") for k in classes for i in (0, 1)]
        for name, label in rows:
            _photograph(place / "images" / (f"{label}/{name}" if by_class else name), 10 * int(label[1:]))
        text = io.StringIO()
        csv.writer(text).writerows([("filename", "label"), *rows])
        (place / f"{part}.csv").write_text(text.getvalue())
    return place


@pytest.mark.parametrize("by_class", [False, True])
def test_miniimagenet(tmp_path: Path, by_class: bool) -> None:
    _mini(tmp_path, by_class)
    data = load_few_shot("miniimagenet", tmp_path, side=12)
    assert [part.class_names for part in data.parts.values()] == [("n1", "n2"), ("n3",), ("n4",)]
    assert data.train.y.tolist() == [1, 1, 0, 0]
    assert data.train.x.shape == (4, 3, 12, 12)
    assert data.train.x[0, :, 5, 5].tolist() == [20, 40, 0]
    assert load_few_shot("miniimagenet", tmp_path).val.x.shape[1:] == (3, 84, 84)


def test_miniimagenet_missing_or_broken(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"images/\*\.jpg and train\.csv.* ILSVRC 2012"):
        load_few_shot("miniimagenet", tmp_path)
    place = _mini(tmp_path)
    (place / "images" / "n2_0.png").unlink()
    with pytest.raises(DataError, match=r"no image .*n2_0\.png"):
        load_few_shot("miniimagenet", tmp_path)
    (place / "images" / "n2_0.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(DataError, match=r"n2_0\.png cannot be read as an image"):
        load_few_shot("miniimagenet", tmp_path)
    (place / "train.csv").write_text("file,class\na,b\n")
    with pytest.raises(DataError, match=r"train\.csv has columns file, class"):
        load_few_shot("miniimagenet", tmp_path)
    (place / "train.csv").write_text("")
    with pytest.raises(DataError, match=r"train\.csv cannot be read as CSV"):
        load_few_shot("miniimagenet", tmp_path)
    (place / "train.csv").unlink()
    with pytest.raises(DataError, match=r"no file .*train\.csv"):
        load_few_shot("miniimagenet", tmp_path)


def _mini32(root: Path, **changes: np.ndarray) -> None:
    strips = []
    for k in range(4):
        buffer = io.BytesIO()
        Image.fromarray(np.full((32 * 3, 32, 3), 50 * k, np.uint8)).save(buffer, format="JPEG")
        strips.append(buffer.getvalue())
    arrays = {
        "jpeg": np.frombuffer(b"".join(strips), np.uint8),
        "offset": np.cumsum([0] + [len(strip) for strip in strips]),
        "label": np.repeat(np.arange(4), 3).astype(np.uint8),
        "is_test": np.tile([True, True, False], 4),
        "wnid": np.array([f"n{k}" for k in range(4)]),
        "ravi_split": np.array(["train", "test", "val", "train"]),
    }
    np.savez(root / "miniimagenet32.npz", **{**arrays, **changes})


def test_miniimagenet_in_one_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*miniimagenet32\.npz: .*ravi_split.*ILSVRC 2012"):
        load_few_shot("miniimagenet32", tmp_path)
    _mini32(tmp_path)
    data = load_few_shot("miniimagenet32", tmp_path)
    assert [part.class_names for part in data.parts.values()] == [("n0", "n3"), ("n2",), ("n1",)]
    assert [len(part) for part in data.parts.values()] == [6, 2, 2]  # test images only, where settings are chosen too
    assert data.test.x.unique().tolist() == [50]
    assert len(load_miniimagenet32(tmp_path).images) == 12
    _mini32(tmp_path, jpeg=np.zeros(100, np.uint8), offset=np.array([0, 25, 50, 75, 100]))
    with pytest.raises(DataError, match="strip of class n0 is no image"):
        load_few_shot("miniimagenet32", tmp_path)


def _cub(root: Path, n_classes: int = 8) -> Path:
    place = root / "CUB_200_2011"
    names = [f"{k + 1:03d}.Bird_{k}" for k in range(n_classes)]
    files = [f"{name}/{name[4:]}_{i}.jpg" for name in names for i in (1, 2)]
    for i, file in enumerate(files):
        _photograph(place / "images" / file, 10 * (i // 2), side=(20, 30))
    for name, lines in {
        "classes.txt": names,
        "images.txt": files,
        "image_class_labels.txt": [str(1 + i // 2) for i in range(len(files))],
    }.items():
        (place / name).write_text("".join(f"{i} {line}\n" for i, line in enumerate(lines, start=1)))
    return place


def test_cub(tmp_path: Path) -> None:
    place = _cub(tmp_path)
    data = load_few_shot("cub", tmp_path, side=10)
    numbers = [[int(name[:3]) - 1 for name in part.class_names] for part in data.parts.values()]
    assert numbers == [[0, 2, 4, 6], [1, 5], [3, 7]]
    assert data.val.x.shape == (4, 3, 10, 10)
    assert data.test.x[0, 0].float().mean().item() == pytest.approx(30, abs=3)  # class 3, as JPEG
    assert load_cub(place, side=8).n_classes == 8  # its own folder as the root


def test_cub_missing_or_broken(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"CUB_200_2011 with classes\.txt.*doi 10\.22002"):
        load_few_shot("cub", tmp_path)
    place = _cub(tmp_path)
    (place / "images" / "001.Bird_0" / "Bird_0_1.jpg").unlink()
    with pytest.raises(DataError, match=r"no image .*Bird_0_1\.jpg"):
        load_few_shot("cub", tmp_path)
    (place / "image_class_labels.txt").write_text("1 1\n")
    with pytest.raises(DataError, match="image 2 has no class"):
        load_few_shot("cub", tmp_path)
    (place / "classes.txt").write_text("albatross\n")
    with pytest.raises(DataError, match=r"classes\.txt has the line 'albatross'"):
        load_few_shot("cub", tmp_path)
    (place / "classes.txt").write_bytes(b"1 001.\xff\n")
    with pytest.raises(DataError, match=r"classes\.txt is not UTF-8 text \(byte 6\)"):
        load_few_shot("cub", tmp_path)
    (place / "classes.txt").write_text("\n \n")
    with pytest.raises(DataError, match=r"classes\.txt is empty"):
        load_few_shot("cub", tmp_path)
    (place / "classes.txt").unlink()
    with pytest.raises(DataError, match=r"no file .*classes\.txt"):
        load_few_shot("cub", tmp_path)


def test_miniimagenet_to_cub(tmp_path: Path) -> None:
    _mini(tmp_path)
    _mini32(tmp_path)
    _cub(tmp_path)
    data = load_few_shot("miniimagenet-cub", tmp_path, side=12)
    assert data.train.class_names == ("n1", "n2", "n3", "n4")
    assert data.test.n_classes == 2
    assert load_few_shot("miniimagenet-cub", tmp_path, side=12, all_classes=False).train.class_names == ("n1", "n2")
    small = load_few_shot("miniimagenet-cub", tmp_path, side=32)
    assert small.train.class_names == ("n0", "n1", "n2", "n3")
    assert len(small.train) == 12
    assert load_few_shot("miniimagenet-cub", tmp_path, side=32, all_classes=False).train.n_classes == 2


def test_cifar_fs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"splits/bertinetto.* github\.com/bertinetto/r2d2"):
        load_few_shot("cifar-fs", tmp_path)
    place = tmp_path / "cifar-fs"
    for value, name in enumerate(("apple", "bee", "cup", "dog")):
        _photograph(place / "data" / name / "1.png", 20 * value, side=(32, 32))
    lists = place / "splits" / "bertinetto"
    lists.mkdir(parents=True)
    for part, names in {"train": "dog\nbee\n", "val": "cup\n"}.items():
        (lists / f"{part}.txt").write_text(names)
    with pytest.raises(DataError, match=r"no file .*test\.txt"):
        load_few_shot("cifar-fs", tmp_path)
    (lists / "test.txt").write_text("appel\n")
    with pytest.raises(DataError, match="no folder for appel"):
        load_few_shot("cifar-fs", tmp_path)
    (lists / "test.txt").write_text("apple\n")
    data = load_few_shot("cifar-fs", tmp_path)
    assert [part.class_names for part in data.parts.values()] == [("dog", "bee"), ("cup",), ("apple",)]
    assert data.train.x[:, 0, 0, 0].tolist() == [60, 20]


@pytest.mark.real_data
def test_the_real_file() -> None:
    data = load_few_shot("miniimagenet32")
    assert [part.n_classes for part in data.parts.values()] == [64, 16, 20]
    assert data.train.x.shape == (36 * 300 + 28 * 303, 3, 32, 32)
    assert (data.test.class_sizes == 100).all()


@pytest.mark.real_data
def test_the_rule_for_cub_agrees_with_the_published_list() -> None:
    with open(data_root() / "splits" / "cub200_classes.csv", newline="") as file:
        parts = [row["chen2019_split"] for row in csv.DictReader(file)]
    assert all(part == "base" for part in parts[0::2])
    assert all(part == "val" for part in parts[1::4])
    assert all(part == "novel" for part in parts[3::4])
