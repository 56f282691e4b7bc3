"""Omniglot: 1623 handwritten characters of 50 alphabets, 20 drawings each (Lake, Salakhutdinov & Tenenbaum 2015).

Two layouts are read, whichever is in the data root:

- ``omniglot28.npz``: all drawings at 28 x 28, ink high;
- the authors' archive (github.com/brendenlake/omniglot), unpacked: ``images_background/ALPHABET/characterNN/
  NNNN_MM.png`` and the same under ``images_evaluation``, in the root or in its folder ``omniglot``. The drawings, 105 x
  105 with black ink, are inverted and made smaller.

Which characters are for training differs between papers:

- Lake et al.: the 30 background alphabets (964 characters) against the 20 of the evaluation set (659). They have
  no validation characters; we take some background alphabets, whole, by seed.
- Vinyals et al. (2016), as used since Snell et al. (2017): 1028 characters for training, 172 for validation, 423 for
  testing. The list is read from ``omniglot_classes.csv`` (columns ``label``, the file's number minus 1, and
  ``vinyals_split``), or from ``splits/vinyals/{train,val,test}.txt`` with lines like ``Greek/character01/rot000``
  beside the unpacked archive (github.com/jakesnell/prototypical-networks, ``data/omniglot/splits/vinyals``).
- for transfer to another alphabet's characters: all that are not Latin (1597; Chen et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sureshot.data.archives import read_arrays
from sureshot.data.class_splits import shuffled
from sureshot.data.image_files import read_images
from sureshot.data.image_folders import PARTS
from sureshot.data.images import labelled_images
from sureshot.data.labelled import LabelledSet
from sureshot.data.lists import read_columns, read_list
from sureshot.data.root import DataError, Root, data_root

OMNIGLOT_FILE = "omniglot28.npz"
OMNIGLOT_CLASSES = "omniglot_classes.csv"
_PARTS = ("images_background", "images_evaluation")
_LAYOUT = (
    f"expected the file {OMNIGLOT_FILE} (arrays images (32460, 28, 28) uint8, label, alphabet, alphabet_names, "
    "class_alphabet, class_character, class_is_evaluation), or the folders images_background/ALPHABET/characterNN/"
    "NNNN_MM.png and images_evaluation/... in it or in its folder omniglot: unpack python/images_background.zip and "
    "images_evaluation.zip of github.com/brendenlake/omniglot there"
)


_LISTS = (
    f"expected {OMNIGLOT_CLASSES} with columns label and vinyals_split, or omniglot/splits/vinyals/{{train,val,test}}"
    ".txt with lines like Greek/character01/rot000, from data/omniglot/splits/vinyals of "
    "github.com/jakesnell/prototypical-networks"
)


@dataclass(frozen=True, eq=False)
class Omniglot:
    """All characters found, and what the splits need to know about them."""

    images: LabelledSet  # K characters, named ALPHABET/characterNN
    numbers: np.ndarray  # (K,) int64, the number in the file's name minus 1
    alphabets: tuple[str, ...]  # K
    is_evaluation: np.ndarray  # (K,) bool

    def lake_split(self, val_alphabets: int, seed: int) -> list[LabelledSet]:
        """Background alphabets for training, some of them for validation; evaluation alphabets for testing."""
        alphabets = np.asarray(self.alphabets)
        background = np.unique(alphabets[~self.is_evaluation])
        if not 1 <= val_alphabets < len(background) or not self.is_evaluation.any():
            raise DataError(
                f"val_alphabets={val_alphabets} of {len(background)} background alphabets and "
                f"{int(self.is_evaluation.sum())} evaluation characters: each set needs at least one alphabet"
            )
        chosen = shuffled(background, seed)[:val_alphabets]
        held_out = np.isin(alphabets, chosen) & ~self.is_evaluation
        return self._three(~self.is_evaluation & ~held_out, held_out, self.is_evaluation)

    def vinyals_split(self, root: Root = None) -> list[LabelledSet]:
        """Training, validation and test characters of Vinyals et al. (2016)."""
        part = _vinyals_list(data_root(root), self.images.class_names, self.numbers)
        return self._three(part == "train", part == "val", part == "test")

    def non_latin(self) -> LabelledSet:
        """The characters of all alphabets but the Latin: 1597 of the 1623."""
        return self.images.select_classes(np.flatnonzero(np.asarray(self.alphabets) != "Latin").tolist())

    def _three(self, train: np.ndarray, val: np.ndarray, test: np.ndarray) -> list[LabelledSet]:
        return [self.images.select_classes(np.flatnonzero(mask).tolist()) for mask in (train, val, test)]


def load_omniglot(root: Root = None, side: int = 28) -> Omniglot:
    """All drawings, from either layout; other sizes than 28 pixels need the unpacked archive."""
    folder = data_root(root, OMNIGLOT_FILE, _LAYOUT)
    if (folder / OMNIGLOT_FILE).is_file() and side == 28:
        return _from_npz(folder / OMNIGLOT_FILE)
    for place in (folder / "omniglot", folder):
        if (place / _PARTS[0]).is_dir():
            return _from_archive(place, side)
    if (folder / OMNIGLOT_FILE).is_file():
        raise DataError(f"{folder / OMNIGLOT_FILE} holds 28 x 28 images, side={side} needs the archive; {_LAYOUT}")
    raise DataError(f"no file {folder / OMNIGLOT_FILE}: {_LAYOUT}")


def _from_npz(path: Path) -> Omniglot:
    names = ("images", "label", "alphabet", "alphabet_names", "class_alphabet", "class_character")
    arrays = read_arrays(path, (*names, "class_is_evaluation"))
    alphabets = tuple(str(arrays["alphabet_names"][i]) for i in arrays["class_alphabet"])
    class_names = tuple(f"{a}/{c}" for a, c in zip(alphabets, arrays["class_character"], strict=True))
    images = labelled_images(arrays["images"], arrays["label"], class_names, "Omniglot")
    return Omniglot(images, np.arange(len(class_names)), alphabets, arrays["class_is_evaluation"].astype(bool))


def _from_archive(place: Path, side: int) -> Omniglot:
    folders = [path for part in _PARTS for path in sorted((place / part).glob("*/*")) if path.is_dir()]
    files = [sorted(folder.glob("*.png")) for folder in folders]
    empty = [str(folder) for folder, inside in zip(folders, files, strict=True) if not inside]
    if empty or not folders:
        raise DataError(f"no drawing (NNNN_MM.png) in {empty[0] if empty else place}: {_LAYOUT}")
    numbers = np.array([_number(inside[0]) for inside in files], dtype=np.int64)
    order = np.argsort(numbers)
    folders, files = [folders[i] for i in order], [files[i] for i in order]
    pixels = 255 - read_images([path for inside in files for path in inside], side=side, grey=True)
    y = np.repeat(np.arange(len(files)), [len(inside) for inside in files])
    alphabets = tuple(folder.parent.name for folder in folders)
    class_names = tuple(f"{folder.parent.name}/{folder.name}" for folder in folders)
    is_evaluation = np.array([folder.parent.parent.name == _PARTS[1] for folder in folders])
    return Omniglot(labelled_images(pixels, y, class_names, "Omniglot"), numbers[order], alphabets, is_evaluation)


def _number(path: Path) -> int:
    prefix = path.stem.split("_")[0]
    if not prefix.isdigit():
        raise DataError(f"{path}: expected a name like 0001_01.png (character and drawing)")
    return int(prefix) - 1


def _vinyals_list(folder: Path, class_names: tuple[str, ...], numbers: np.ndarray) -> np.ndarray:
    """ "train", "val" or "test" for each character, (K,)."""
    table = folder / OMNIGLOT_CLASSES
    if table.is_file():
        by_number = dict(zip(*read_columns(table, ("label", "vinyals_split"), _LISTS), strict=True))
        found = [by_number.get(str(number)) for number in numbers]
    else:
        by_name = _vinyals_texts(folder)
        found = [by_name.get(name) for name in class_names]
    absent = [name for name, part in zip(class_names, found, strict=True) if part not in PARTS]
    if absent:
        raise DataError(
            f"{folder}: the Vinyals split does not say where {absent[0]} and {len(absent) - 1} others belong"
        )
    return np.array(found)


def _vinyals_texts(folder: Path) -> dict[str, str]:
    for place in (folder / "omniglot" / "splits" / "vinyals", folder / "splits" / "vinyals"):
        if place.is_dir():
            rows = [(line, part) for part in PARTS for line in read_list(place / f"{part}.txt", _LISTS)]
            return {"/".join(line.split("/")[:2]): part for line, part in rows}
    raise DataError(f"no list of the Vinyals split in {folder}: {_LISTS}")
