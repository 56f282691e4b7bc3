"""Few-shot data of handwritten characters: Omniglot by itself, and as the base of transfer to letters and digits.

Turning characters by 90, 180 and 270 degrees (``rotations``) makes four times the classes. It is the default for
Omniglot by itself, as in the literature, and off for transfer, as in the code behind the published results (though the
papers' text speaks of 4114 turned classes). Turns are made after the split, so the four classes of a character stay
together; letters and digits are not turned.
"""

from __future__ import annotations

from sureshot.data.choice import choice_split, load_choice
from sureshot.data.emnist import emnist_split, load_emnist
from sureshot.data.images import with_rotations
from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.data.omniglot import load_omniglot
from sureshot.data.root import Root


def omniglot_lake(
    root: Root = None, *, rotations: bool = True, val_alphabets: int = 5, seed: int = 0, side: int = 28
) -> FewShotData:
    """Omniglot by Lake's background and evaluation alphabets.

    Lake et al. have no validation set: the seed chooses some of the 30 background alphabets.
    """
    parts = load_omniglot(root, side).lake_split(val_alphabets, seed)
    text = f"Omniglot, Lake's split, {val_alphabets} background alphabets for validation (seed {seed})"
    return FewShotData.of_parts(
        "omniglot-lake", text + _rotation(rotations), (_rotated(part, rotations) for part in parts)
    )


def omniglot_vinyals(root: Root = None, *, rotations: bool = True, side: int = 28) -> FewShotData:
    """Omniglot by the 1028, 172 and 423 characters of Vinyals et al. (2016)."""
    parts = load_omniglot(root, side).vinyals_split(root)
    text = "Omniglot, Vinyals's split" + _rotation(rotations)
    return FewShotData.of_parts("omniglot-vinyals", text, (_rotated(part, rotations) for part in parts))


def omniglot_choice(root: Root = None, *, rotations: bool = False, binary: bool = False) -> FewShotData:
    """From Omniglot's 1597 non-Latin characters to CHoiCe: 29 classes for validation, 31 for testing.

    Rotations are of the Omniglot characters; ``binary`` is CHoiCe in black and white instead of grey.
    """
    train = _rotated(load_omniglot(root).non_latin(), rotations)
    text = f"Omniglot, non-Latin{_rotation(rotations)}, to CHoiCe, even classes for validation and odd for testing"
    return FewShotData.of_parts("omniglot-choice", text, [train, *choice_split(load_choice(root, binary))])


def omniglot_emnist(root: Root = None, *, rotations: bool = False, part: str = "test") -> FewShotData:
    """From Omniglot's 1597 non-Latin characters to EMNIST: 31 classes for validation, 31 for testing.

    Rotations are of the Omniglot characters; ``part`` is which of EMNIST's images, "test", "train" or "both".
    """
    train = _rotated(load_omniglot(root).non_latin(), rotations)
    rotated = _rotation(rotations)
    text = f"Omniglot, non-Latin{rotated}, to EMNIST ({part}), even classes for validation and odd for testing"
    return FewShotData.of_parts("omniglot-emnist", text, [train, *emnist_split(load_emnist(root, part))])


def _rotated(images: LabelledSet, rotations: bool) -> LabelledSet:
    return with_rotations(images) if rotations else images


def _rotation(rotations: bool) -> str:
    return ", with rotations" if rotations else ", without rotations"
