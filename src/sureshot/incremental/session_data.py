"""Protocols of sessions by name.

==================  =======================================================================================
name                sessions
==================  =======================================================================================
digits              scikit-learn's handwritten digits: 4 base classes, then 2 at a time, 5 shots
clinc150            sentence embeddings: 100 base intents, then ten times 5, 5 shots; queries out of scope
embeddings          any NPZ file of embeddings, classes by lists or by seed
miniimagenet32      photographs at 32 px: 60 base classes, then eight times 5, 5 shots, by Tao et al.'s lists
miniimagenet        the same at 84 px, all photographs of the base classes
cub                 birds: 100 base classes, then ten times 10, 5 shots, by Tao et al.'s lists
==================  =======================================================================================

Options are the keyword arguments of the function of that name, checked as for few-shot data. Every function takes a
``seed``; where classes and shots are lists, it changes nothing. To add a protocol, write a function that returns
`Sessions` and enter it below.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from sureshot.data.checks import listed
from sureshot.data.class_splits import shuffled
from sureshot.data.clinc150 import load_clinc150
from sureshot.data.cub import load_cub
from sureshot.data.labelled import LabelledSet, places_within_classes
from sureshot.data.mini_imagenet import load_miniimagenet32, load_whole_miniimagenet
from sureshot.data.own_classes import labelled_npz
from sureshot.data.root import DataError, Root
from sureshot.data.session_lists import SessionLists, cub_lists, miniimagenet32_lists, miniimagenet_lists
from sureshot.data.typed_values import assembled
from sureshot.incremental.sessions import Session, Sessions, session_classes


def load_sessions(name: str, root: Root = None, **options: Any) -> Sessions:
    """Sessions by a name of the table above, with options such as ``seed`` or ``shots``."""
    return assembled("sessions", _ASSEMBLERS, name, root, options)


def digits(
    root: Root = None,
    *,
    n_base: int = 4,
    way: int = 2,
    shots: int = 5,
    base_shots: int | None = None,  # all training rows by default
    seed: int = 0,  # of the order of the classes, the halves and the shots
) -> Sessions:
    """Scikit-learn's handwritten digits; half of each class's rows train, the other half tests. Needs no data root."""
    data = load_digits()
    rows = LabelledSet.from_arrays(data.data / 16, data.target)
    train, test = _halves(rows, 0.5, seed)
    base, novel = session_classes(rows.class_names, n_base, way, seed=seed)
    return Sessions.drawn(
        train,
        test,
        base,
        novel,
        shots,
        base_shots=base_shots,
        seed=seed,
        name="digits",
        description=f"handwritten digits, {n_base} base classes, then {way} at a time with {shots} shots, seed {seed}",
    )


def clinc150(
    root: Root = None,
    *,
    n_base: int = 100,
    way: int = 5,
    shots: int = 5,
    n_sessions: int | None = None,  # after the base session; as many as there are intents for by default
    base_shots: int | None = None,  # all 100 queries by default
    test_shots: int | None = None,  # test queries of each intent, the first ones; all 30 by default
    seed: int = 0,  # of the order of the intents and the shots
) -> Sessions:
    """Intents of CLINC150 (sentence embeddings); its own training and test queries, and those out of scope."""
    data = load_clinc150(root, dtype=np.float32)
    train, test = (
        LabelledSet(torch.from_numpy(x), torch.from_numpy(y), data.intent_names)
        for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test))
    )
    if test_shots is not None:
        if test_shots < 1:
            raise DataError(f"test_shots={test_shots}, expected at least 1")
        test = test.select_rows(
            (places_within_classes(test.y, torch.arange(len(test))) < test_shots).nonzero().flatten()
        )
    base, novel = session_classes(data.intent_names, n_base, way, n_sessions, seed)
    return Sessions.drawn(
        train,
        test,
        base,
        novel,
        shots,
        base_shots=base_shots,
        seed=seed,
        name="clinc150",
        description=(
            f"CLINC150 embeddings, {n_base} base intents, then {len(novel)} sessions of {way} with {shots} shots, "
            f"seed {seed}"
        ),
        out_of_scope=torch.from_numpy(data.x_oos),
    )


def embeddings(
    root: Root = None,
    *,
    path: str | os.PathLike[str],
    target: str | None = None,  # the array of labels, if not y or label
    test_path: str | os.PathLike[str] | None = None,  # a file of test rows; else a share of each class's rows
    test_fraction: float | None = None,  # 0.3
    n_base: int | None = None,  # of classes drawn by seed
    way: int | None = None,
    n_sessions: int | None = None,  # after the base session; as many as there are classes for by default
    base_classes: Sequence[str | int] | None = None,  # by name, in place of the three above
    novel_classes: Sequence[Sequence[str | int]] | None = None,
    shots: int = 5,
    base_shots: int | None = None,  # all training rows by default
    out_of_scope_label: str | int | None = None,  # of test rows that belong to no class ("-1", say)
    seed: int = 0,
) -> Sessions:
    """Any NPZ file of embeddings, as `sureshot.data.read_npz` reads it; a relative path starts at ``root``, if given.

    Classes come by ``n_base`` and ``way`` in an order that the seed decides, or by ``base_classes`` and
    ``novel_classes``, a list for each session; names and labels are compared as text.
    """
    place = Path(root or ".") / path
    rows, outside = labelled_npz(place, target, out_of_scope_label, needed=test_path is None)
    if test_path is None:
        train, test = _halves(rows, 0.3 if test_fraction is None else test_fraction, seed)
    else:
        if test_fraction is not None:
            raise DataError("test_path and test_fraction exclude each other: test rows are of a file, or a share")
        if (Path(root or ".") / test_path).resolve() == place.resolve():
            raise DataError(
                f"test_path is the file of the rows to learn from, {place}: leave it out to test on a share"
            )
        train, other = rows, Path(root or ".") / test_path
        test, beside = labelled_npz(other, target, out_of_scope_label, needed=outside is None)
        outside = beside if beside is not None else outside
    if base_classes is not None and novel_classes is not None and n_base is None and way is None and n_sessions is None:
        base, novel = [str(c) for c in base_classes], [[str(c) for c in part] for part in novel_classes]
        text = f"{len(base)} base classes, then {len(novel)} sessions as listed"
    elif base_classes is None and novel_classes is None and n_base is not None and way is not None:
        base, novel = session_classes(rows.class_names, n_base, way, n_sessions, seed)
        text = f"{n_base} base classes, then {len(novel)} sessions of {way}"
    else:
        raise DataError("give n_base and way (n_sessions may be left out), or base_classes and novel_classes")
    if test_path is not None:
        train, test = _of_classes(train, test, {*base, *(name for part in novel for name in part)}, other)
    return Sessions.drawn(
        train,
        test,
        base,
        novel,
        shots,
        base_shots=base_shots,
        seed=seed,
        name="embeddings",
        description=f"embeddings of {place.name}, {text}, {shots} shots, seed {seed}",
        out_of_scope=outside,
    )


def _of_classes(
    train: LabelledSet,
    test: LabelledSet,
    named: Collection[str],  # classes of the sessions
    place: Path,  # of the test rows
) -> tuple[LabelledSet, LabelledSet]:
    """Both parts as they are where they have the same classes, else those that the sessions bring."""
    if train.class_names == test.class_names:
        return train, test
    asked = [name for name in train.class_names if name in named]
    if missing := [name for name in asked if name not in test.class_names]:
        raise DataError(f"{place} has no rows of {listed(missing)}, which the sessions bring")
    parts = ((part, [k for k, name in enumerate(part.class_names) if name in asked]) for part in (train, test))
    train, test = (part.select_classes(kept) if kept else part for part, kept in parts)
    return train, test


def miniimagenet32(root: Root = None, *, seed: int = 0) -> Sessions:
    """mini-ImageNet at 32 x 32 by Tao et al.'s lists of classes, shots and test photographs."""
    text = "mini-ImageNet at 32 px, 60 base classes, then 8 sessions of 5 with 5 shots, Tao et al.'s lists"
    return _by_lists(load_miniimagenet32(root).images, miniimagenet32_lists(root), "miniimagenet32", text)


def miniimagenet(
    root: Root = None,
    *,
    side: int = 84,  # pixels
    seed: int = 0,
) -> Sessions:
    """mini-ImageNet from files by Tao et al.'s lists of classes, shots and test photographs."""
    lists = miniimagenet_lists(root)
    text = f"mini-ImageNet at {side} px, 60 base classes, then 8 sessions of 5 with 5 shots, Tao et al.'s lists"
    return _by_lists(load_whole_miniimagenet(root, side), lists, "miniimagenet", text)


def cub(
    root: Root = None,
    *,
    side: int = 84,  # pixels
    seed: int = 0,
) -> Sessions:
    """CUB-200-2011 by Tao et al.'s lists of classes and shots; its own test photographs."""
    lists = cub_lists(root)
    text = f"CUB-200-2011 at {side} px, 100 base classes, then 10 sessions of 10 with 5 shots, Tao et al.'s lists"
    return _by_lists(load_cub(root, side), lists, "cub", text)


def _by_lists(images: LabelledSet, lists: SessionLists, name: str, description: str) -> Sessions:
    shown, tested = (torch.from_numpy(np.flatnonzero(part)) for part in (lists.is_shown, lists.is_test))
    train, test = images.select_rows(shown), images.select_rows(tested)
    of_row = lists.session_of[train.y.numpy()]
    sessions = tuple(
        Session(tuple(np.flatnonzero(lists.session_of == k).tolist()), tuple(np.flatnonzero(of_row == k).tolist()))
        for k in range(int(lists.session_of.max()) + 1)
    )
    return Sessions(train, test, sessions, name, description)


def _halves(rows: LabelledSet, test_fraction: float, seed: int) -> tuple[LabelledSet, LabelledSet]:
    """A training and a test part with rows of every class in both."""
    if not 0 < test_fraction < 1:
        raise DataError(f"test_fraction={test_fraction:g}, expected more than 0 and less than 1")
    is_test = torch.zeros(len(rows), dtype=torch.bool)
    order = shuffled(len(rows), seed)
    for c, size in enumerate(rows.class_sizes.tolist()):
        if size < 2:
            raise DataError(f"class {rows.class_names[c]!r} has one row, but one is needed to learn and one to test")
        own = order[rows.y.numpy()[order] == c]
        is_test[own[: min(size - 1, max(1, round(test_fraction * size)))]] = True
    return rows.select_rows(~is_test), rows.select_rows(is_test)


_ASSEMBLERS: dict[str, Callable[..., Sessions]] = {
    "digits": digits,
    "clinc150": clinc150,
    "embeddings": embeddings,
    "miniimagenet32": miniimagenet32,
    "miniimagenet": miniimagenet,
    "cub": cub,
}

SESSION_NAMES = tuple(_ASSEMBLERS)
"""Names of `load_sessions`."""
