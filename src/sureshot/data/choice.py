"""CHoiCe: 62 classes of cursive handwritten characters (Zhang, Gedeon, Caldwell & Plested 2021).

Digits, lower-case and upper-case letters, 40 to 76 drawings each, read from ``choice62.npz`` at 28 x 28 with bright
ink. It has the classes of EMNIST and stands in for it as the target of transfer from Omniglot, with the same rule:
classes of even number are for validation, those of odd number for testing.

28 drawings are stored both as ``o`` and as ``O``, pixel for pixel. These 56 images are dropped. That leaves 13 and 15
of the two classes, too few for the usual 15 queries after 5 shots, so validation omits both and has 29 classes.
"""

from __future__ import annotations

import numpy as np

from sureshot.data.archives import read_arrays
from sureshot.data.images import labelled_images
from sureshot.data.labelled import LabelledSet
from sureshot.data.root import Root, data_file

CHOICE_FILE = "choice62.npz"
_FEW = ("o", "O")
_LAYOUT = (
    "expected an NPZ file with images (2811, 28, 28) uint8, binary, label 0 to 61, ambiguous and class_names, made "
    "from the folders data and data-bin of CHoiCe version 0.3 (github.com/skyatmoon/CHoiCe-Dataset, doi "
    "10.25911/602355a95f787) with bright ink"
)


def load_choice(
    root: Root = None,
    binary: bool = False,  # black and white, as its authors made it, instead of grey
) -> LabelledSet:
    """All 62 classes without the drawings that are in two of them."""
    path = data_file(CHOICE_FILE, root, _LAYOUT)
    arrays = read_arrays(path, ("images", "binary", "label", "ambiguous", "class_names"))
    keep = ~arrays["ambiguous"].astype(bool)
    pixels = arrays["binary"].astype(np.uint8) * 255 if binary else arrays["images"]
    return labelled_images(pixels[keep], arrays["label"][keep], [str(name) for name in arrays["class_names"]], "CHoiCe")


def choice_split(images: LabelledSet) -> list[LabelledSet]:
    """Classes of even number but ``o`` and ``O`` for validation (29), those of odd number for testing (31)."""
    few = [images.class_names.index(name) for name in _FEW if name in images.class_names]
    val = [k for k in range(0, images.n_classes, 2) if k not in few]
    return [images.select_classes(val), images.select_classes(range(1, images.n_classes, 2))]
