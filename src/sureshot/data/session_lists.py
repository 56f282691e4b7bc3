"""Tao et al.'s lists: which classes and photographs of mini-ImageNet and CUB come in which session.

Classes arrive in sessions (`sureshot.incremental.sessions`); published numbers are by these lists, from
github.com/xyutao/fscil (``data/index_list``). Those of mini-ImageNet, at any size, are inside the NPZ file of its
photographs at 32 x 32, which has the numbers of their files; those of CUB in ``splits/cub200_fscil.csv.gz`` of the data
root: a table with a row for each photograph, its path below ``images``, its ``official_split``, the ``fscil_session``
of its class (from 1) and ``in_session_train_list`` (1 if it is shown).

Reference: Tao et al., "Few-shot class-incremental learning" (2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from sureshot.data.archives import read_arrays
from sureshot.data.checks import reason
from sureshot.data.cub import cub_image_names
from sureshot.data.mini_imagenet import MINIIMAGENET32_FILE, miniimagenet_image_names
from sureshot.data.root import DataError, Root, data_file

CUB_LISTS_FILE = "splits/cub200_fscil.csv.gz"
_ORIGIN = "the lists of github.com/xyutao/fscil (data/index_list)"
_MINIIMAGENET32 = (
    "expected in the NPZ file is_fscil_shot (N,), photographs that later sessions show, and fscil_session (100,) of "
    f"the classes, from 1: {_ORIGIN}"
)
_MINIIMAGENET = (
    f"expected {MINIIMAGENET32_FILE} beside the files, with label, file_number, is_test and is_fscil_shot (N,) of the "
    f"photographs, wnid and fscil_session (100,) of the classes: {_ORIGIN}"
)
_CUB = (
    "expected a table image,official_split,fscil_session,in_session_train_list with a row for each photograph of "
    f"CUB-200-2011: {_ORIGIN}"
)
_CUB_COLUMNS = ["image", "official_split", "fscil_session", "in_session_train_list"]


@dataclass(frozen=True, eq=False)
class SessionLists:
    """Sessions of a set of photographs, in the order of its reader."""

    session_of: np.ndarray  # (K,) int64, the session of each class; that of the base session is 0
    is_shown: np.ndarray  # (N,) bool, training photographs that a session shows
    is_test: np.ndarray  # (N,) bool


def miniimagenet32_lists(root: Root = None) -> SessionLists:
    """Of `sureshot.data.mini_imagenet.load_miniimagenet32`; base classes show all that is not for testing."""
    path = data_file(MINIIMAGENET32_FILE, root, _MINIIMAGENET32)
    arrays = read_arrays(path, ("label", "is_test", "is_fscil_shot", "fscil_session"))
    session_of, is_test = arrays["fscil_session"].astype(np.int64) - 1, arrays["is_test"].astype(bool)
    base = session_of[arrays["label"]] == 0
    return SessionLists(session_of, np.where(base, ~is_test, arrays["is_fscil_shot"].astype(bool)), is_test)


def miniimagenet_lists(root: Root = None) -> SessionLists:
    """Of `sureshot.data.mini_imagenet.load_whole_miniimagenet`; base classes show all that is not for testing."""
    names = miniimagenet_image_names(root)
    path = data_file(MINIIMAGENET32_FILE, root, _MINIIMAGENET)
    keys = ("label", "file_number", "is_test", "is_fscil_shot", "wnid", "fscil_session")
    label, number, *masks, wnid, session = (array.tolist() for array in read_arrays(path, keys).values())
    session_of_class = dict(zip(wnid, session, strict=True))
    files = [f"{wnid[c]}{i:08d}" for c, i in zip(label, number, strict=True)]
    tested, shots = ({file for file, chosen in zip(files, mask, strict=True) if chosen} for mask in masks)
    stems = {stem for stem, _ in names}
    if missing := sorted((tested | shots) - stems):
        raise DataError(f"the lists of miniimagenet have no {missing[0]}.jpg, which its sessions need: {_MINIIMAGENET}")
    classes = sorted({of for _, of in names})
    if unknown := [one for one in classes if one not in session_of_class]:
        raise DataError(f"{path} has no class {unknown[0]} of miniimagenet's: {_MINIIMAGENET}")
    is_test = np.array([stem in tested for stem, _ in names])
    is_base = np.array([session_of_class[of] == 1 for _, of in names])
    is_shot = np.array([stem in shots for stem, _ in names])
    session_of = np.array([session_of_class[of] - 1 for of in classes], dtype=np.int64)
    return SessionLists(session_of, np.where(is_base, ~is_test, is_shot), is_test)


def cub_lists(root: Root = None) -> SessionLists:
    """Of `sureshot.data.cub.load_cub`."""
    names = cub_image_names(root)
    path = data_file(CUB_LISTS_FILE, root, _CUB)
    try:
        frame = pd.read_csv(path)
    except (ValueError, pd.errors.ParserError, OSError) as error:
        raise DataError(f"{path} cannot be read as CSV ({reason(error)}): {_CUB}") from None
    if not set(_CUB_COLUMNS) <= set(frame.columns):
        raise DataError(f"{path} has columns {', '.join(map(str, frame.columns))}: {_CUB}")
    by_image = frame.set_index("image")
    missing = [name for name in names if name not in by_image.index]
    if missing or not by_image.index.is_unique:
        which = f"has no row for {missing[0]}" if missing else "names a photograph twice"
        raise DataError(f"{path} {which}: {_CUB}")
    rows = by_image.loc[names]
    of_row = rows["fscil_session"].to_numpy(dtype=np.int64) - 1
    classes = np.unique([name.split("/")[0] for name in names], return_inverse=True)[1]
    session_of = np.zeros(classes.max() + 1, dtype=np.int64)
    session_of[classes] = of_row
    if (session_of[classes] != of_row).any() or set(session_of.tolist()) != set(range(session_of.max() + 1)):
        raise DataError(f"{path}: each class must be in one fscil_session, and these count from 1: {_CUB}")
    is_test = (rows["official_split"] == "test").to_numpy()
    return SessionLists(session_of, (rows["in_session_train_list"] == 1).to_numpy(), is_test)
