"""Few-shot data of photographs: mini-ImageNet, CUB, CIFAR-FS, and transfer from mini-ImageNet to CUB."""

from __future__ import annotations

from sureshot.data.cifar_fs import load_cifar_fs
from sureshot.data.cub import cub_split, load_cub
from sureshot.data.labelled import FewShotData, concatenate
from sureshot.data.mini_imagenet import load_miniimagenet, load_miniimagenet32
from sureshot.data.root import Root


def miniimagenet(root: Root = None, *, side: int = 84) -> FewShotData:
    """mini-ImageNet from files, 64, 16 and 20 classes of Ravi & Larochelle (2017)."""
    return FewShotData.of_parts(
        "miniimagenet", f"mini-ImageNet at {side} px, Ravi's split", load_miniimagenet(root, side)
    )


def miniimagenet32(root: Root = None) -> FewShotData:
    """mini-ImageNet at 32 x 32, the same classes; 100 images of each validation and test class."""
    text = "mini-ImageNet at 32 px (a subset of the images), Ravi's split"
    return FewShotData.of_parts("miniimagenet32", text, load_miniimagenet32(root).few_shot_split())


def cub(root: Root = None, *, side: int = 84) -> FewShotData:
    """CUB-200-2011, 100, 50 and 50 classes of Hilliard et al. (2018)."""
    return FewShotData.of_parts("cub", f"CUB-200-2011 at {side} px, Hilliard's split", cub_split(load_cub(root, side)))


def cifar_fs(root: Root = None, *, side: int = 32) -> FewShotData:
    """CIFAR-FS, 64, 16 and 20 classes of Bertinetto et al. (2019)."""
    return FewShotData.of_parts("cifar-fs", f"CIFAR-FS at {side} px, Bertinetto's split", load_cifar_fs(root, side))


def miniimagenet_cub(root: Root = None, *, side: int = 84, all_classes: bool = True) -> FewShotData:
    """From mini-ImageNet to the validation and test classes of CUB.

    At 32 pixels mini-ImageNet is read from ``miniimagenet32.npz``, at other sizes from files. All its 100 classes
    train, as in Chen et al. (2019) and the code behind the published results, or only the 64 training classes.
    """
    _, val, test = cub_split(load_cub(root, side))
    if side == 32:
        small = load_miniimagenet32(root)
        train = small.images if all_classes else small.few_shot_split()[0]
    else:
        parts = load_miniimagenet(root, side)
        train = concatenate(parts if all_classes else parts[:1])
    text = f"mini-ImageNet ({train.n_classes} classes) to CUB-200-2011 at {side} px"
    return FewShotData(train, val, test, "miniimagenet-cub", text)
