"""Damage to images, against hand arithmetic and moments."""

from __future__ import annotations

import pytest
import torch

from sureshot.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt, disk_kernel


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_gaussian_noise_has_the_published_deviations() -> None:
    grey = torch.full((8, 1, 64, 64), 0.5)
    for severity, deviation in zip(SEVERITIES, (0.08, 0.12, 0.18), strict=False):
        noise = corrupt(grey, "gaussian_noise", severity, _generator()) - grey
        # 32768 independent values: the standard deviation is known to 1 / sqrt(2 n) = 0.4 %. At 0.18 clipping begins
        # at 2.8 deviations and takes 0.8 % away.
        assert noise.std().item() == pytest.approx(deviation, rel=0.02)
        assert abs(noise.mean().item()) < 5 * deviation / 32768**0.5
    clipped = corrupt(grey, "gaussian_noise", 5, _generator())
    # A tail of 0.5 / 0.38 deviations is clipped on each side.
    tail = torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor(-0.5 / 0.38)).item()
    assert (clipped == 0).float().mean().item() == pytest.approx(tail, abs=0.008)
    assert (clipped == 1).float().mean().item() == pytest.approx(tail, abs=0.008)


@pytest.mark.parametrize(("severity", "fraction"), [(1, 0.03), (2, 0.06), (3, 0.09), (4, 0.17), (5, 0.27)])
def test_impulse_noise_is_salt_and_pepper(severity: int, fraction: float) -> None:
    grey = torch.full((8, 3, 64, 64), 0.5)
    noisy = corrupt(grey, "impulse_noise", severity, _generator(severity))
    n = grey.numel()
    for value in (0.0, 1.0):
        share = (noisy == value).float().mean().item()
        assert abs(share - fraction / 2) < 4 * (fraction / 2 / n) ** 0.5
    assert ((noisy == 0.5) | (noisy == 0) | (noisy == 1)).all()
    damaged = noisy != 0.5
    assert (damaged[:, 0] != damaged[:, 1]).any()  # each channel on its own


def test_a_sharp_disk_by_hand() -> None:
    # A rim of 0.1 pixels weighs a neighbour exp(-50): none.
    kernel = disk_kernel(1.0, 0.1)
    assert kernel.shape == (5, 5)
    plus = torch.zeros(5, 5, dtype=torch.float64)
    plus[2, 1:4] = plus[1:4, 2] = 0.2
    torch.testing.assert_close(kernel, plus)
    # Radius 3: 29 pixels, the rows having 1, 5, 5, 7, 5, 5, 1.
    assert ((disk_kernel(3.0, 0.1) > 1e-9).sum(1)).tolist() == [0, 1, 5, 5, 7, 5, 5, 1, 0]
    assert disk_kernel(3.0, 0.1).max().item() == pytest.approx(1 / 29)


def test_a_smoothed_point_by_hand() -> None:
    # Radius below one pixel leaves the middle; smoothing by 0.5 gives a Gaussian window.
    kernel = disk_kernel(0.9, 0.5)
    taps = torch.exp(-2.0 * torch.tensor([4.0, 1.0, 0.0, 1.0, 4.0], dtype=torch.float64))
    taps /= taps.sum()
    torch.testing.assert_close(kernel, taps[:, None] * taps)


@pytest.mark.parametrize(("radius", "rim"), [(3.0, 0.1), (4.0, 0.5), (10.0, 0.5), (3.33, 0.5)])
def test_the_lens_is_round_and_keeps_the_light(radius: float, rim: float) -> None:
    kernel = disk_kernel(radius, rim)
    assert kernel.sum().item() == pytest.approx(1.0)
    torch.testing.assert_close(kernel, kernel.T)
    torch.testing.assert_close(kernel, kernel.flip(0))


def test_a_point_of_light_becomes_the_disk() -> None:
    point = torch.zeros(1, 1, 84, 84, dtype=torch.float64)
    point[0, 0, 40, 42] = 1.0
    blurred = corrupt(point, "defocus_blur", 1, _generator())
    expected = torch.zeros(84, 84, dtype=torch.float64)
    expected[36:45, 38:47] = disk_kernel(3.0, 0.1)
    torch.testing.assert_close(blurred[0, 0], expected)


def test_below_84_pixels_the_radius_follows_the_side() -> None:
    def spread(side: int, severity: int) -> int:
        point = torch.zeros(1, 1, side, side)
        point[0, 0, side // 2, side // 2] = 1.0
        return int((corrupt(point, "defocus_blur", severity, _generator())[0, 0, side // 2] > 1e-3).sum())

    assert spread(84, 1) == spread(200, 1) == 7
    assert spread(28, 1) == 3  # radius 3 x 28 / 84 = 1
    assert [spread(28, severity) for severity in (2, 3, 4, 5)] == sorted(spread(28, s) for s in (2, 3, 4, 5))
    assert spread(28, 5) < spread(84, 5)


def test_worse_with_severity_and_flat_images_stay_flat_under_blur() -> None:
    images = torch.rand(4, 3, 32, 32, generator=_generator(5))
    for kind in CORRUPTIONS:
        change = [(corrupt(images, kind, s, _generator(6)) - images).square().mean().item() for s in SEVERITIES]
        assert change == sorted(change)
        assert change[0] > 0
    flat = torch.full((1, 1, 28, 28), 0.3)
    torch.testing.assert_close(corrupt(flat, "defocus_blur", 5, _generator()), flat)


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_shape_range_and_generator(kind: str) -> None:
    images = torch.rand(2, 5, 3, 28, 28, generator=_generator(1))  # tasks as leading dimensions
    before = images.clone()
    once, again = (corrupt(images, kind, 3, _generator(7)) for _ in range(2))
    assert once.shape == images.shape
    assert once.dtype == images.dtype
    assert once.min() >= 0
    assert once.max() <= 1
    torch.testing.assert_close(once, again, rtol=0, atol=0)
    torch.testing.assert_close(images, before, rtol=0, atol=0)
    if kind != "defocus_blur":
        assert not torch.equal(once, corrupt(images, kind, 3, _generator(8)))


@pytest.mark.parametrize(
    ("images", "kind", "severity", "match"),
    [
        (torch.zeros(1, 1, 8, 8), "fog", 1, "expected one of gaussian_noise"),
        (torch.zeros(1, 1, 8, 8), "gaussian_noise", 6, "1 to 5"),
        (torch.zeros(1, 1, 8, 8, dtype=torch.uint8), "gaussian_noise", 1, "divide bytes by 255"),
        (torch.full((1, 1, 8, 8), 1.5), "gaussian_noise", 1, "outside"),
        (torch.full((1, 1, 8, 8), float("nan")), "gaussian_noise", 1, "NaN"),
        (torch.zeros(1, 1, 2, 2), "defocus_blur", 5, "smaller than the blur"),
    ],
)
def test_what_cannot_be_damaged(images: torch.Tensor, kind: str, severity: int, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        corrupt(images, kind, severity, _generator())
