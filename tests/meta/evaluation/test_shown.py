"""What pictures of learners of numbers are drawn from."""

from __future__ import annotations

import numpy as np
import torch

from sureshot.data.labelled import LabelledSet
from sureshot.meta.evaluation.shown import bands, completed_images
from sureshot.meta.functions import load_functions
from sureshot.meta.functions.groups import Groups
from sureshot.meta.functions.images import Images
from sureshot.meta.processes import ExactProcess, make_process


def test_bands_go_through_what_is_known() -> None:
    source = load_functions("functions", family="rbf", lengthscale=[1.0, 1.0]).test
    few, many = bands(ExactProcess.of(source), source, seed=3)
    assert (few["context"], many["context"]) == (5, 15)
    assert few["context_x"] == many["context_x"][:5]
    assert many["trained_to"] == 2
    assert (many["x"][0], many["x"][-1]) == (-2, 4)
    at = np.interp(many["context_x"], many["x"], many["mean"])
    np.testing.assert_allclose(at, many["context_y"], atol=0.2)
    beyond = np.array(many["x"]) > 3.5
    assert np.array(many["deviation"])[beyond].mean() > 3 * np.median(many["deviation"])


def test_bands_of_a_table_end_where_its_rows_do() -> None:
    x = torch.linspace(3, 7, 40)[:, None]
    source = Groups(x, x.sin(), torch.zeros(40, dtype=torch.long))
    found = bands(make_process("cnp", 1, 1, width=8), source)
    assert found[0]["trained_to"] is None
    assert 3 <= found[0]["x"][0] < 3.5
    assert 6.5 < found[0]["x"][-1] <= 7.0001


def test_an_image_is_shown_with_the_pixels_that_were_known() -> None:
    pixels = torch.randint(1, 256, (6, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    source = Images(LabelledSet(pixels, torch.arange(6) // 2, ("a", "b", "c")))
    found = completed_images(make_process("cnp", 2, 1, width=8), source, sizes=(10,))
    assert [one["size"] for one in found] == [10, 64]
    some, every = found
    assert list(some["shape"]) == [8, 8, 1]
    assert sum(some["known"]) == 10
    assert sum(every["known"]) == 64
    assert sum(np.array_equal(every["context"], image.flatten()) for image in pixels.numpy()) == 1
    known = np.array(some["known"], dtype=bool)
    np.testing.assert_array_equal(np.array(some["context"])[known], np.array(every["context"])[known])
    assert not np.array(some["context"])[~known].any()
