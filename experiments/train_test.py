"""Labelled images of one set of classes, to train on and to test on, by name.

==================  =====================================================================  ============
name                classes                                                                read in
==================  =====================================================================  ============
cifar10             10 kinds of things, 5000 training and 1000 test images of each         `cifar`
cifar100            100 kinds of things, 500 training and 100 test images of each          `cifar`
cifar10-subset      10 kinds of things, 1000 training and 200 test images of each          `cifar`
omniglot-drawers    100 handwritten characters; 15 drawings to train on, 5 to test         `omniglot`
miniimagenet32-base the 60 base classes of Tao et al.'s sessions, 200 and 100 photographs  `session_lists`
miniimagenet-base   the same at 84 px, 500 and 100 photographs of each                     `session_lists`
cub-base            the 100 base classes of Tao et al.'s sessions of CUB, at 84 px         `session_lists`
==================  =====================================================================  ============

Unlike few-shot data (`sureshot.data.few_shot`) the classes are the same on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from experiments.cifar import load_cifar10, load_cifar10_subset, load_cifar100
from sureshot.data.checks import near
from sureshot.data.class_splits import shuffled
from sureshot.data.cub import load_cub
from sureshot.data.labelled import LabelledSet, places_within_classes
from sureshot.data.mini_imagenet import load_miniimagenet32, load_whole_miniimagenet
from sureshot.data.omniglot import load_omniglot
from sureshot.data.root import DataError, Root
from sureshot.data.session_lists import SessionLists, cub_lists, miniimagenet32_lists, miniimagenet_lists

_CHARACTERS = 100
_DRAWINGS = 15  # of 20, to train on


@dataclass(frozen=True, eq=False)
class TrainTestData:
    """Two labelled sets of the same classes."""

    train: LabelledSet
    test: LabelledSet
    name: str
    description: str  # one line for tables

    def __post_init__(self) -> None:
        if self.train.class_names != self.test.class_names or self.train.x.shape[1:] != self.test.x.shape[1:]:
            raise DataError(f"{self.name}: training and test rows must have the same classes and the same shape")


def load_train_test(name: str, root: Root = None) -> TrainTestData:
    """Data by a name of the table above."""
    if name not in _READERS:
        raise DataError(f"no data called {name!r}{near(name, _READERS)}; names: {', '.join(_READERS)}")
    read, description = _READERS[name]
    return TrainTestData(*read(root), name, description)


def _omniglot_drawers(root: Root) -> tuple[LabelledSet, LabelledSet]:
    """A hundred characters of all alphabets, chosen once and for all; the first drawings of each to train on."""
    images = load_omniglot(root).images
    chosen = images.select_classes(np.sort(shuffled(images.n_classes, 0)[:_CHARACTERS]).tolist())
    place = places_within_classes(chosen.y, torch.arange(len(chosen)))
    return chosen.select_rows(place < _DRAWINGS), chosen.select_rows(place >= _DRAWINGS)


def _miniimagenet32_base(root: Root) -> tuple[LabelledSet, LabelledSet]:
    return _base_classes(load_miniimagenet32(root).images, miniimagenet32_lists(root))


def _miniimagenet_base(root: Root) -> tuple[LabelledSet, LabelledSet]:
    return _base_classes(load_whole_miniimagenet(root), miniimagenet_lists(root))


def _cub_base(root: Root) -> tuple[LabelledSet, LabelledSet]:
    return _base_classes(load_cub(root), cub_lists(root))


def _base_classes(images: LabelledSet, lists: SessionLists) -> tuple[LabelledSet, LabelledSet]:
    """What a network may learn before classes arrive in sessions."""
    base = images.select_classes(np.flatnonzero(lists.session_of == 0).tolist())
    is_test = torch.from_numpy(lists.is_test[lists.session_of[images.y.numpy()] == 0])
    return base.select_rows(~is_test), base.select_rows(is_test)


_READERS: dict[str, tuple[Callable[[Root], tuple[LabelledSet, LabelledSet]], str]] = {
    "cifar10": (load_cifar10, "CIFAR-10"),
    "cifar100": (load_cifar100, "CIFAR-100"),
    "cifar10-subset": (load_cifar10_subset, "CIFAR-10, 1000 training and 200 test images of a class"),
    "omniglot-drawers": (_omniglot_drawers, "100 characters of Omniglot, 15 drawings to train on and 5 to test"),
    "miniimagenet32-base": (_miniimagenet32_base, "60 base classes of mini-ImageNet at 32 px, Tao et al.'s lists"),
    "miniimagenet-base": (_miniimagenet_base, "60 base classes of mini-ImageNet at 84 px, Tao et al.'s lists"),
    "cub-base": (_cub_base, "100 base classes of CUB-200-2011 at 84 px, Tao et al.'s lists"),
}

TRAIN_TEST_NAMES = tuple(_READERS)
