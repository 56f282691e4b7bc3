"""Few-shot data without a published split of classes: CLINC150, any folder of images, any file of embeddings or texts.

The classes are shared out by a seed, or by lists of names. Validation classes are always taken out of what could be
trained on: settings must not be chosen on the classes that are reported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sureshot.data.checks import check_class_labels, listed, near
from sureshot.data.class_splits import shuffled, split_by_names, split_by_seed
from sureshot.data.clinc150 import load_clinc150
from sureshot.data.embeddings import read_npz
from sureshot.data.image_folders import has_split, read_class_folders, read_split_folders
from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.data.root import DataError, Root
from sureshot.data.tables import read_table

_FRACTIONS = (0.6, 0.2, 0.2)


def clinc150(root: Root = None, *, n_base: int = 75, n_val: int = 15, seed: int = 0) -> FewShotData:
    """Intents of CLINC150 (sentence embeddings): 75 to learn from, of which 15 validate, and 75 others to test on.

    The 150 intents are permuted by the seed; the first ``n_base`` are the base, of which the last ``n_val`` are for
    validation, so that the test intents do not depend on it; all others are for testing. The set's own rows for
    training, validation and testing are pooled (150 of each intent): here classes are held out, not rows.
    ``out_of_scope`` has its 1000 test queries that have none of the 150 intents.
    """
    pooled, out_of_scope = all_intents(root)
    n_classes = pooled.n_classes
    if not 0 < n_val < n_base < n_classes:
        raise DataError(f"n_base={n_base}, n_val={n_val}: expected 0 < n_val < n_base < {n_classes}")
    order = shuffled(n_classes, seed).tolist()
    n_train = n_base - n_val
    return FewShotData(
        train=pooled.select_classes(order[:n_train]),
        val=pooled.select_classes(order[n_train:n_base]),
        test=pooled.select_classes(order[n_base:]),
        name="clinc150",
        description=f"CLINC150 embeddings, intents {n_train} / {n_val} / {n_classes - n_base} by seed {seed}",
        out_of_scope=out_of_scope,
    )


def all_intents(root: Root = None) -> tuple[LabelledSet, Tensor]:
    """All 150 intents of CLINC150 with 150 queries each, and queries of none of them."""
    data = load_clinc150(root, dtype=np.float32)
    pooled = LabelledSet(
        torch.from_numpy(np.concatenate([data.x_train, data.x_val, data.x_test])),
        torch.from_numpy(np.concatenate([data.y_train, data.y_val, data.y_test])),
        data.intent_names,
    )
    return pooled, torch.from_numpy(data.x_oos)


def folder(
    root: Root = None,
    *,
    path: str | os.PathLike[str],
    side: int = 84,  # pixels
    grey: bool = False,  # one channel instead of three
    fractions: Sequence[float] = _FRACTIONS,
    seed: int = 0,
) -> FewShotData:
    """Any folder of images with a sub-folder for each class; a relative path starts at ``root``, if given.

    With sub-folders ``train``, ``val`` and ``test``, each of class folders, these are the split. Otherwise fractions of
    the classes are shared out by the seed.
    """
    place = Path(root or ".") / path
    if has_split(place):
        text = f"images of {place.name} at {side} px, split as in its folders"
        return FewShotData.of_parts("folder", text, read_split_folders(place, side=side, grey=grey))
    images = read_class_folders(place, side=side, grey=grey)
    train, val, test = split_by_seed(images.class_names, fractions, seed)
    text = f"images of {place.name} at {side} px, classes {len(train)} / {len(val)} / {len(test)} by seed {seed}"
    return FewShotData.of_parts("folder", text, (images.select_classes(part) for part in (train, val, test)))


def embeddings(
    root: Root = None,
    *,
    path: str | os.PathLike[str],
    target: str | None = None,  # the array of labels, if not y or label
    fractions: Sequence[float] = _FRACTIONS,
    seed: int = 0,
    train_classes: Sequence[str | int] | None = None,
    val_classes: Sequence[str | int] | None = None,
    test_classes: Sequence[str | int] | None = None,
    out_of_scope_label: str | int | None = None,  # of rows that belong to no class ("-1", say)
) -> FewShotData:
    """Any NPZ file of embeddings, as `sureshot.data.read_npz` reads it; a relative path as in `folder`.

    Classes are shared out by fractions and seed unless they are named; names and labels are compared as text.
    ``val_classes`` and ``test_classes`` go together; without ``train_classes`` all others train.
    """
    place = Path(root or ".") / path
    rows, outside = labelled_npz(place, target, out_of_scope_label)
    parts, how = _shared_out(rows, fractions, seed, train_classes, val_classes, test_classes)
    return FewShotData(*parts, "embeddings", f"embeddings of {place.name}, classes {how}", outside)


def texts(
    root: Root = None,
    *,
    path: str | os.PathLike[str],
    encoder: str | os.PathLike[str],  # the folder of a model of sentence-transformers
    text: str = "text",  # the column of texts
    target: str = "label",  # that of labels
    fractions: Sequence[float] = _FRACTIONS,
    seed: int = 0,
    train_classes: Sequence[str | int] | None = None,
    val_classes: Sequence[str | int] | None = None,
    test_classes: Sequence[str | int] | None = None,
) -> FewShotData:
    """Texts of any table as embeddings of unit length by a sentence transformer, with the extra sentence-transformers.

    Paths and classes as in `embeddings`. Each call encodes all texts anew.
    """
    place, model = (Path(root or ".") / part for part in (path, encoder))
    found, labels, names, *_ = read_table(place, target)
    if not isinstance(found, pd.DataFrame) or text not in found or labels is None:
        raise DataError(f"{place} has no column {text!r}{near(text, names or ())}; columns: {listed(names or ())}")
    empty = np.flatnonzero(found[text].isna())
    if len(empty):
        raise DataError(f"{place}: {len(empty)} rows have no {text} (the first is row {empty[0]}, counted from 0)")
    rows = LabelledSet.from_arrays(_encoded(found[text].astype(str).tolist(), model), labels)
    parts, how = _shared_out(rows, fractions, seed, train_classes, val_classes, test_classes)
    return FewShotData(*parts, "texts", f"texts of {place.name} by {model.name}, classes {how}")


def _encoded(texts: list[str], model: Path) -> np.ndarray:
    if not (model / "modules.json").is_file():
        raise DataError(f"{model} is no folder of a sentence transformer, in which there is a file modules.json")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        install = "python -m pip install 'sureshot[sentence-transformers]'"
        raise ImportError(f"texts need sentence-transformers ({error}): {install}") from error
    encoder = SentenceTransformer(str(model), local_files_only=True)
    return np.asarray(encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False))


def _shared_out(
    rows: LabelledSet, fractions: Sequence[float], seed: int, *named: Sequence[str | int] | None
) -> tuple[tuple[LabelledSet, LabelledSet, LabelledSet], str]:
    """Classes to train on, validate and test, by names or by chance; and how many, in words."""
    train_classes, val_classes, test_classes = named
    if not any(classes is not None for classes in named):
        split, how = split_by_seed(rows.class_names, fractions, seed), f"by seed {seed}"
    elif val_classes is not None and test_classes is not None:
        split, how = split_by_names(rows.class_names, train_classes, val_classes, test_classes), "as listed"
    else:
        raise DataError("name val_classes and test_classes together (train_classes may be left out), or none of them")
    train, val, test = (rows.select_classes(part) for part in split)
    return (train, val, test), f"{train.n_classes} / {val.n_classes} / {test.n_classes} {how}"


def labelled_npz(
    place: Path,
    target: str | None,
    out_of_scope_label: str | int | None,
    needed: bool = True,  # whether a file without rows of that label is a mistake
) -> tuple[LabelledSet, Tensor | None]:
    """Rows of an NPZ file of embeddings that are of classes, and those that are of none."""
    if not place.is_file():
        raise DataError(f"no file {place}: expected embeddings written by numpy.savez(path, X=X, y=y)")
    X, y, _ = read_npz(place, target)
    if y is None:
        raise DataError(f"{place} has no labels: add an array y, (N,), or name the array with target")
    rows = LabelledSet.from_arrays(X, check_class_labels(place, pd.Series(y), "the label array", as_text=False))
    if out_of_scope_label is None:
        return rows, None
    names = rows.class_names
    if str(out_of_scope_label) not in names:
        if needed:
            raise DataError(f"{place} has no label {out_of_scope_label!r}; labels: {listed(names)}")
        return rows, None
    at = names.index(str(out_of_scope_label))
    return rows.select_classes([k for k in range(len(names)) if k != at]), rows.x[rows.y == at]
