"""Few-shot data by name: classes to learn from, classes to choose settings on, classes to test on.

==================  ==================================================================  ====================
name                classes                                                             assembled in
==================  ==================================================================  ====================
omniglot-lake       background / evaluation alphabets, four turns of each character     `characters`
omniglot-vinyals    1028 / 172 / 423 characters, four turns each                        `characters`
omniglot-choice     1597 non-Latin characters to 29 / 31 letters and digits of CHoiCe   `characters`
omniglot-emnist     1597 non-Latin characters to 31 / 31 letters and digits of EMNIST   `characters`
miniimagenet        64 / 16 / 20 kinds of photographs at 84 px                          `photographs`
miniimagenet32      the same at 32 px, from one prepared file                           `photographs`
cub                 100 / 50 / 50 birds at 84 px                                        `photographs`
miniimagenet-cub    mini-ImageNet to 50 / 50 birds                                      `photographs`
cifar-fs            64 / 16 / 20 kinds of things at 32 px                               `photographs`
clinc150            60 / 15 / 75 intents, sentence embeddings                           `own_classes`
folder              any folder of images                                                `own_classes`
embeddings          any NPZ file of embeddings                                          `own_classes`
texts               any table of texts, embedded by a sentence transformer              `own_classes`
transfer            the training classes of one, the others of another                  here
==================  ==================================================================  ====================

Options are the keyword arguments of the function of that name; an unknown one is refused, and so is a value of another
kind than its annotation says (see `sureshot.data.typed_values`). To add a data set, write a function that returns
`FewShotData` and enter it below. Those of other packages, and functions that a script has registered
(`register_dataset`), count like ours, by their names with dashes for underscores (`sureshot.plugins`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sureshot.data.characters import omniglot_choice, omniglot_emnist, omniglot_lake, omniglot_vinyals
from sureshot.data.labelled import FewShotData, LabelledSet, concatenate
from sureshot.data.own_classes import clinc150, embeddings, folder, texts
from sureshot.data.photographs import cifar_fs, cub, miniimagenet, miniimagenet32, miniimagenet_cub
from sureshot.data.root import DataError, Root
from sureshot.data.typed_values import assembled
from sureshot.plugins import Registry

__all__ = ["FEW_SHOT_NAMES", "FewShotData", "LabelledSet", "load_few_shot", "register_dataset"]


def load_few_shot(name: str, root: Root = None, **options: Any) -> FewShotData:
    """Few-shot data by a name of the table above, with options such as ``rotations`` or ``seed``."""
    return _assembled(name, root, options)


def _assembled(name: str, root: Root, options: Mapping[str, Any]) -> FewShotData:
    found = assembled("few-shot data", DATASETS, name, root, options)
    if not isinstance(found, FewShotData):
        raise DataError(f"the data set {name!r} returns {type(found).__name__}, and classes are FewShotData")
    return found


_SOURCES = ("omniglot", "miniimagenet", "cub", "cifar", "clinc150")


def share_source(first: str, second: str) -> bool:
    """Whether classes of two data sets that are called alike are one class, by the names of the sets.

    A transfer goes by those of its parts, with anything between them.
    """
    return any(source in first and source in second for source in _SOURCES)


def transfer(
    root: Root = None,
    *,
    base: str,
    novel: str,
    all_base_classes: bool = False,  # train on the validation and test classes of the base set, too
    base_options: Mapping[str, Any] | None = None,
    novel_options: Mapping[str, Any] | None = None,
) -> FewShotData:
    """The training classes of one set, the validation and test classes of another, of inputs of one shape."""
    source = _assembled(base, root, base_options or {})
    target = _assembled(novel, root, novel_options or {})
    train = concatenate(list(source.parts.values())) if all_base_classes else source.train
    if share_source(base, novel):
        both = sorted({*train.class_names} & {*target.val.class_names, *target.test.class_names})
        if both:
            raise DataError(
                f"{len(both)} classes of {novel} that are to be new are among those of {base} that are trained on "
                f"({both[0]!r}, say): take a set of other classes, or other options"
            )
    return FewShotData(
        train=train,
        val=target.val,
        test=target.test,
        name="transfer",
        description=f"from {source.description}{' (all classes)' if all_base_classes else ''} to {target.description}",
        out_of_scope=target.out_of_scope,
    )


def _name_of(assemble: Callable[..., Any]) -> str:
    """What a function that makes few-shot data is asked for by."""
    return str(getattr(assemble, "__name__", "")).replace("_", "-")


_OURS: tuple[Callable[..., Any], ...] = (
    omniglot_lake,
    omniglot_vinyals,
    omniglot_choice,
    omniglot_emnist,
    miniimagenet,
    miniimagenet32,
    cub,
    miniimagenet_cub,
    cifar_fs,
    clinc150,
    folder,
    embeddings,
    texts,
    transfer,
)
DATASETS = Registry("data set", {_name_of(assemble): assemble for assemble in _OURS}, _name_of)
FEW_SHOT_NAMES = tuple(DATASETS.ours)

register_dataset = DATASETS.register
