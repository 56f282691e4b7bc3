"""Tao et al.'s lists on small copies of their layouts."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from experiments.train_test import load_train_test
from sureshot.data import DataError
from sureshot.data.session_lists import cub_lists, miniimagenet32_lists, miniimagenet_lists
from sureshot.incremental.session_data import load_sessions


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """Four birds, three photographs each, the last for testing; the first two birds are the base session."""
    place = tmp_path / "CUB_200_2011"
    names = [f"{k + 1:03d}.Bird_{k}" for k in range(4)]
    files = [f"{name}/{name[4:]}_{i}.jpg" for name in names for i in range(3)]
    for i, file in enumerate(files):
        (place / "images" / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((12, 12, 3), 20 * (i // 3), np.uint8)).save(place / "images" / file)
    for name, lines in {
        "classes.txt": names,
        "images.txt": files,
        "image_class_labels.txt": [str(1 + i // 3) for i in range(len(files))],
    }.items():
        (place / name).write_text("".join(f"{i} {line}\n" for i, line in enumerate(lines, start=1)))
    (tmp_path / "splits").mkdir()
    frame = pd.DataFrame(
        {
            "image": files,
            "official_split": ["train", "train", "test"] * 4,
            "fscil_session": [1] * 6 + [3] * 3 + [2] * 3,
            "in_session_train_list": [1, 1, 0] * 2 + [1, 0, 0] * 2,
        }
    )
    # In another order than images.txt.
    frame.iloc[::-1].to_csv(tmp_path / "splits" / "cub200_fscil.csv.gz", index=False)
    return tmp_path


def test_cub(birds: Path) -> None:
    lists = cub_lists(birds)
    assert lists.session_of.tolist() == [0, 0, 2, 1]
    assert np.flatnonzero(lists.is_shown).tolist() == [0, 1, 3, 4, 6, 9]
    assert np.flatnonzero(lists.is_test).tolist() == [2, 5, 8, 11]
    sessions = load_sessions("cub", birds, side=8)
    assert [session.classes for session in sessions.sessions] == [(0, 1), (3,), (2,)]
    assert [len(session.rows) for session in sessions.sessions] == [4, 1, 1]
    assert sessions.arriving(1).x.shape == (1, 3, 8, 8)
    assert abs(float(sessions.arriving(1).x.mean()) - 60) < 3
    assert sessions.asked(2).y.tolist() == [0, 1, 2, 3]
    base = load_train_test("cub-base", birds)
    assert base.train.class_names == ("001.Bird_0", "002.Bird_1")
    assert (base.train.y.tolist(), base.test.y.tolist()) == ([0, 0, 1, 1], [0, 1])


def test_lists_of_cub_that_do_not_fit(birds: Path) -> None:
    path = birds / "splits" / "cub200_fscil.csv.gz"
    frame = pd.read_csv(path)
    frame.iloc[1:].to_csv(path, index=False)
    with pytest.raises(DataError, match=r"has no row for 004.Bird_3/Bird_3_2.jpg: expected a table image"):
        cub_lists(birds)
    pd.concat([frame, frame.iloc[:1]]).to_csv(path, index=False)
    with pytest.raises(DataError, match="names a photograph twice"):
        cub_lists(birds)
    frame.assign(fscil_session=range(1, 13)).to_csv(path, index=False)
    with pytest.raises(DataError, match="each class must be in one fscil_session"):
        cub_lists(birds)
    frame.drop(columns="official_split").to_csv(path, index=False)
    with pytest.raises(DataError, match="has columns image, fscil_session, in_session_train_list: expected"):
        cub_lists(birds)
    path.write_bytes(b"no gzip")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        cub_lists(birds)
    path.unlink()
    with pytest.raises(DataError, match=r"no file .*cub200_fscil.csv.gz"):
        cub_lists(birds)


def test_miniimagenet_at_any_size(tmp_path: Path) -> None:
    """Three classes in the lists of three parts; the file at 32 px says which photographs are whose."""
    place = tmp_path / "miniimagenet"
    (place / "images").mkdir(parents=True)
    wnids = ["n00000002", "n00000001", "n00000003"]
    for part, wnid in zip(("train", "val", "test"), wnids, strict=True):
        names = [f"{wnid}{number:08d}.jpg" for number in (7, 5, 6, 9)]
        for name in names:
            Image.fromarray(np.full((12, 12, 3), 20 * int(wnid[-1]), np.uint8)).save(place / "images" / name)
        (place / f"{part}.csv").write_text("filename,label\n" + "".join(f"{name},{wnid}\n" for name in names))
    arrays = {
        "label": np.repeat(np.arange(3), 3).astype(np.uint8),  # not all photographs are in it
        "file_number": np.tile([5, 6, 7], 3).astype(np.int32),
        "is_test": np.tile([True, False, False], 3),
        "is_fscil_shot": np.array([False] * 3 + [False, True, False] * 2),
        "wnid": np.array(wnids),
        "fscil_session": np.array([1, 2, 3], dtype=np.uint8),
    }
    np.savez(tmp_path / "miniimagenet32.npz", **arrays)
    lists = miniimagenet_lists(tmp_path)
    assert lists.session_of.tolist() == [1, 0, 2]
    assert np.flatnonzero(lists.is_test).tolist() == [1, 5, 9]
    assert np.flatnonzero(lists.is_shown).tolist() == [0, 2, 3, 6, 10]
    found = load_sessions("miniimagenet", tmp_path, side=8)
    assert [session.classes for session in found.sessions] == [(1,), (0,), (2,)]
    assert [len(session.rows) for session in found.sessions] == [3, 1, 1]
    assert abs(float(found.arriving(2).x.mean()) - 60) < 3
    base = load_train_test("miniimagenet-base", tmp_path)
    assert (len(base.train), len(base.test), base.train.x.shape[1:]) == (3, 1, (3, 84, 84))
    np.savez(
        tmp_path / "miniimagenet32.npz",
        **arrays | {"file_number": np.tile([5, 6, 8], 3), "is_test": ~arrays["is_test"]},
    )
    with pytest.raises(DataError, match=r"have no n0000000100000008.jpg, which its sessions need: expected"):
        miniimagenet_lists(tmp_path)
    np.savez(tmp_path / "miniimagenet32.npz", **arrays | {"wnid": np.array([*wnids[:2], "n00000004"])})
    with pytest.raises(DataError, match=r"no n0000000400000005.jpg"):
        miniimagenet_lists(tmp_path)


def test_miniimagenet32(tmp_path: Path) -> None:
    strips = []
    for k in range(3):
        buffer = io.BytesIO()
        Image.fromarray(np.full((32 * 4, 32, 3), 50 * k, np.uint8)).save(buffer, format="JPEG")
        strips.append(buffer.getvalue())
    arrays = {
        "jpeg": np.frombuffer(b"".join(strips), np.uint8),
        "offset": np.cumsum([0] + [len(strip) for strip in strips]),
        "label": np.repeat(np.arange(3), 4).astype(np.uint8),
        "is_test": np.tile([True, False, False, False], 3),
        "wnid": np.array([f"n{k}" for k in range(3)]),
        "ravi_split": np.array(["train", "test", "val"]),
    }
    np.savez(tmp_path / "miniimagenet32.npz", **arrays)
    with pytest.raises(DataError, match="has no array is_fscil_shot, fscil_session"):
        miniimagenet32_lists(tmp_path)
    shots = np.zeros(12, dtype=bool)
    shots[[5, 9, 10]] = True
    sessions = np.array([1, 2, 3], dtype=np.uint8)
    np.savez(tmp_path / "miniimagenet32.npz", **arrays, is_fscil_shot=shots, fscil_session=sessions)
    found = load_sessions("miniimagenet32", tmp_path)
    # Base classes show all that is not for testing, the others their shots only.
    assert [len(session.rows) for session in found.sessions] == [3, 1, 2]
    assert len(found.train) == 6
    assert found.asked(1).y.tolist() == [0, 1]
