"""Damaged images at five severities: Gaussian noise, impulse noise, defocus blur.

A classifier that knows how sure it is should become less sure as its query images get worse. These are three of the
corruptions of Hendrycks & Dietterich (2019), with their constants, on images in [0, 1] and clipped to [0, 1]:

- ``gaussian_noise``: independent noise of standard deviation .08 .12 .18 .26 .38 on every value;
- ``impulse_noise`` (salt and pepper): each value, for each channel on its own, becomes 0 or 1, equally likely, with
  probability .03 .06 .09 .17 .27;
- ``defocus_blur``: a disk of radius 3 4 6 8 10 pixels, its rim smoothed by a Gaussian of .1 .5 .5 .5 .5 pixels.

Below 84 pixels, where published few-shot results apply them, the radius is multiplied by side / 84: the blur then
covers the same part of the image. The rim's smoothing is about pixels, and stays.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

CORRUPTIONS = ("gaussian_noise", "impulse_noise", "defocus_blur")
SEVERITIES = (1, 2, 3, 4, 5)

_NOISE = (0.08, 0.12, 0.18, 0.26, 0.38)
_IMPULSES = (0.03, 0.06, 0.09, 0.17, 0.27)
_RADIUS = (3.0, 4.0, 6.0, 8.0, 10.0)
_RIM = (0.1, 0.5, 0.5, 0.5, 0.5)
_FULL_RADIUS_SIDE = 84


def corrupt(
    images: Tensor,  # (..., channels, H, W) float, in [0, 1]
    kind: str,  # one of `CORRUPTIONS`
    severity: int,  # 1 (slight) to 5
    generator: torch.Generator,  # draws on its device: one on the CPU gives images on any the same noise
) -> Tensor:
    """Images with one kind of damage, of the same shape and dtype, in [0, 1].

    References
    ----------
    Hendrycks & Dietterich (2019), "Benchmarking neural network robustness to common corruptions and perturbations".
    """
    if kind not in CORRUPTIONS:
        raise ValueError(f"kind={kind!r}, expected one of {', '.join(CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise ValueError(f"severity={severity!r}, expected a whole number from 1 to 5")
    if not images.is_floating_point() or images.dim() < 3:
        raise ValueError(
            f"images of dtype {images.dtype} and shape {tuple(images.shape)}, expected floats (..., channels, H, W) in "
            "[0, 1]; divide bytes by 255"
        )
    if images.numel() and not bool(((images >= 0) & (images <= 1)).all()):
        raise ValueError("images have values outside [0, 1] or NaN; corrupt them before they are standardised")
    if kind == "gaussian_noise":
        return _gaussian_noise(images, _NOISE[severity - 1], generator)
    if kind == "impulse_noise":
        return _impulse_noise(images, _IMPULSES[severity - 1], generator)
    scale = min(1.0, min(images.shape[-2:]) / _FULL_RADIUS_SIDE)
    return _convolve(images, disk_kernel(_RADIUS[severity - 1] * scale, _RIM[severity - 1]))


def _gaussian_noise(images: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    noise = torch.randn(images.shape, generator=generator, device=generator.device, dtype=images.dtype)
    return (images + deviation * noise.to(images.device)).clamp(0, 1)


def _impulse_noise(images: Tensor, fraction: float, generator: torch.Generator) -> Tensor:
    # One uniform number decides both: below fraction / 2 pepper, from there to fraction salt.
    uniform = torch.rand(images.shape, generator=generator, device=generator.device, dtype=torch.float32).to(
        images.device
    )
    salted = torch.where(uniform < fraction, torch.ones_like(images), images)
    return torch.where(uniform < fraction / 2, torch.zeros_like(images), salted)


def disk_kernel(
    radius: float,  # in pixels: pixels whose centre is at most this far away have equal weight
    rim: float,  # standard deviation of the Gaussian that smooths the disk, in pixels
) -> Tensor:
    """Weights of an out-of-focus lens: a disk, its rim smoothed; (2 h + 1, 2 h + 1) float64, of sum 1.

    h is the radius and three standard deviations, each in whole pixels.
    """
    reach = math.ceil(3 * rim)
    half = math.floor(radius) + reach
    at = torch.arange(-half, half + 1, dtype=torch.float64)
    disk = (at[:, None].square() + at.square() <= radius**2).to(torch.float64)
    # Along one axis and then the other: a Gaussian is a product.
    taps = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=torch.float64) / rim).square())
    smoothed = disk[None, None]
    for window in (taps[:, None], taps[None, :]):
        smoothed = functional.conv2d(smoothed, window[None, None], padding="same")
    return smoothed[0, 0] / smoothed.sum()


def _convolve(images: Tensor, kernel: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    half = kernel.shape[0] // 2
    if half >= min(height, width):
        raise ValueError(f"images of {height} x {width} pixels are smaller than the blur of {2 * half + 1} pixels")
    planes = images.reshape(-1, 1, height, width)
    padded = functional.pad(planes, (half, half, half, half), mode="reflect")
    blurred = functional.conv2d(padded, kernel.to(images)[None, None])
    return blurred.reshape(images.shape).clamp(0, 1)
