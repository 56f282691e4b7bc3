"""What a method says of one function, for a picture: bands along an axis, an image completed. JSON values.

The seed decides the function, so that all methods that are asked with the same seed are shown the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor

from sureshot.meta.functions.images import Images
from sureshot.meta.functions.source import FunctionSource, with_context
from sureshot.meta.learners.functions import AdaptsToFunctions
from sureshot.meta.protocols import FunctionProtocol
from sureshot.meta.tasks import Tasks
from sureshot.networks.seeds import generator_for

PLACES = 200  # along the axis
IN_BANDS = (5, 15)  # rows of context
IN_IMAGES = (10, 100, 300)  # pixels, and at last all of them


class Band(TypedDict):
    """Of a function of one input, given some rows."""

    context: int
    trained_to: float | None  # where the training's inputs end, if the axis goes on
    x: list[float]
    mean: list[float]
    deviation: list[float]
    context_x: list[float]
    context_y: list[float]


class CompletedImage(TypedDict):
    """An image given some pixels; intensities of 0 to 255, row by row, the channels of a pixel together."""

    size: int  # pixels known
    shape: Sequence[int]  # height, width, channels
    known: list[int]  # 1 for a pixel that was seen, (height * width)
    mean: list[int]
    context: list[int]


def bands(
    method: AdaptsToFunctions, source: FunctionSource, seed: int = 0, sizes: Sequence[int] = IN_BANDS
) -> list[Band]:
    """Means and deviations of one function of one input, and half a range beyond the training's where it is known."""
    drawn = source.sample(1, FunctionProtocol(max(sizes), 50), generator_for(seed, "function of the picture"))
    if source.inputs is None:
        seen = torch.cat([drawn.query_x[drawn.query.real], drawn.support_x[drawn.support.real]])
        low, high = float(seen.min()), float(seen.max())
    else:
        low, high = source.inputs
        high += (high - low) / 2
    x = torch.linspace(low, high, PLACES, dtype=drawn.query_x.dtype)[None, :, None]
    found = []
    for size in sizes:
        tasks = with_context(drawn, size)
        known = tasks.support.real
        mean, deviation = method.adapt(tasks).predict(x)
        found.append(
            Band(
                context=size,
                trained_to=source.inputs and source.inputs[1],
                x=_rounded(x),
                mean=_rounded(mean),
                deviation=_rounded(deviation),
                context_x=_rounded(tasks.support_x[known]),
                context_y=_rounded(tasks.support_y[known]),
            )
        )
    return found


def completed_images(
    method: AdaptsToFunctions, source: Images, seed: int = 0, sizes: Sequence[int] = IN_IMAGES
) -> list[CompletedImage]:
    """One image, completed from a few sizes of context and from all pixels."""
    generator = generator_for(seed, "image of the picture")
    places = source.places.unsqueeze(0)
    rows = source.pixels(torch.randint(len(source.images), (1,), generator=generator), len(places[0]), generator)
    order = torch.cdist(places[0], rows.x[0].float()).argmin(1)  # where each pixel is among the rows
    shape, found = (*source.images.shape[2:], source.target_width), []
    for size in (*sizes, places.shape[1]):
        known = torch.zeros(len(order), dtype=torch.bool)
        known[:size] = True
        x, y = (part.float().masked_fill(~known[None, :, None], 0.0) for part in (rows.x, rows.y))
        mean, _ = method.adapt(Tasks(x, y, x[:, :0], y[:, :0], 0, known.unsqueeze(0))).predict(places)
        seen = known[order].int().tolist()
        found.append(CompletedImage(size=size, shape=shape, known=seen, mean=_bytes(mean), context=_bytes(y[:, order])))
    return found


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.flatten().tolist()]


def _bytes(intensities: Tensor) -> list[int]:
    return (intensities.clamp(0, 1) * 255).round().int().flatten().tolist()
