"""Kernels of tasks: scales that are learned or not, length-scales, rows of zeros."""

from __future__ import annotations

import pytest
import torch

from sureshot.kernels import KERNEL_NAMES
from sureshot.meta.learners.task_kernel import TaskKernel

DIRECTIONS = ("cosine", "unit_rbf", "unit_matern32")


@pytest.mark.parametrize("name", [name for name in KERNEL_NAMES if name not in DIRECTIONS])
def test_zero_is_a_point_like_any_other(name: str) -> None:
    kernel = TaskKernel(name, 3).double()
    others = torch.tensor([[[1.0, 1.0, 1.0], [0.5, -1.0, 2.0]]], dtype=torch.float64)
    zero, near = (torch.full((1, 1, 3), value, dtype=torch.float64) for value in (0.0, 1e-9))
    for values in (lambda z: kernel.gram(z), lambda z: kernel.cross(z, others), lambda z: kernel.variance(z)):
        torch.testing.assert_close(values(zero), values(near), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", DIRECTIONS)
def test_directions_of_nothing_are_finite(name: str) -> None:
    z = torch.zeros(1, 2, 3, requires_grad=True)
    gram = TaskKernel(name, 3).gram(z)
    assert bool(torch.isfinite(gram).all())
    assert bool(torch.isfinite(torch.autograd.grad(gram.sum(), z)[0]).all())


@pytest.mark.parametrize("scale", ["exp", "double_softplus"])
@pytest.mark.parametrize("learned", [True, False])
def test_the_scale_is_learned_as_a_whole_or_not_at_all(scale: str, learned: bool) -> None:
    kernel = TaskKernel("cosine", 3, outputscale=4.0, learn_outputscale=learned, scale=scale)  # type: ignore[arg-type]
    torch.testing.assert_close(kernel.outputscale, torch.tensor(4.0))
    scales = [p for name, p in kernel.named_parameters() if "outputscale" in name]
    assert scales
    assert all(parameter.requires_grad == learned for parameter in scales)


def test_a_lengthscale_of_a_kernel_without_one() -> None:
    for name in ("cosine", "linear", "polynomial2"):
        with pytest.raises(ValueError, match=f"the kernel '{name}' has no length-scale"):
            TaskKernel(name, 3, lengthscale=2.0)
    TaskKernel("unit_rbf", 3, lengthscale=2.0)
