"""The kernel of a deep-kernel learner: a preset on the embeddings of a batch of tasks.

Hyper-parameters are logarithms, so that a small learning rate changes a scale by the same factor wherever it is; the
papers' ``exp(alpha)``. All tasks and, unless ``per_class``, all classes share them.

============== ============================================ =================================
name           k(z, z')                                     in the papers
============== ============================================ =================================
cosine         ``s <z, z'> / (|z| |z'|)``                   cosine
linear         ``s <z, z'> / D``                            linear
rbf            ``s exp(-|z - z'|^2 / (2 l^2))``             RBF
unit_rbf       the same on unit-length embeddings           normalised RBF
matern52, ...  Matern                                       Matern
polynomial1, 2 ``s (<z, z'> / D + offset)^p``               polynomial
============== ============================================ =================================

References: Snell & Zemel 2021, appendix H; Patacchiola et al. 2020, eq. 46 of the former (double softplus).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import gpytorch
import torch
from gpytorch.constraints import Positive
from torch import Tensor, nn

from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.prior import Queries
from sureshot.kernels import evaluate, make_kernel

Scale = Literal["exp", "double_softplus"]


class TaskKernel(nn.Module):
    """A kernel on the embeddings of a batch of tasks."""

    def __init__(
        self,
        name: str,  # one of `sureshot.kernels.KERNEL_NAMES`
        n_features: int,  # D
        outputscale: float = 1.0,  # initial
        learn_outputscale: bool = True,
        constant: float = 0.0,  # initial variance of an intercept relative to the base; 0 for none, as in the papers
        lengthscale: float | None = None,  # initial; `natural_lengthscale` by default
        # Separate hyper-parameters for each of this many classes (deep kernel transfer as published). By default all
        # share them: the order of the classes does not matter, and tasks may have any number of classes.
        n_classes: int | None = None,
        scale: Scale = "exp",  # or ``softplus(a) softplus(v)``, as published for deep kernel transfer
    ) -> None:
        super().__init__()
        if scale not in ("exp", "double_softplus"):
            raise ValueError(f"scale must be 'exp' or 'double_softplus', got {scale!r}")
        if constant < 0:
            raise ValueError(f"constant is a relative variance, 0 for none; got {constant}")
        batch = () if n_classes is None else (n_classes,)
        kernel = make_kernel(
            name,
            n_features,
            constant=constant > 0,
            lengthscale=lengthscale,
            outputscale=outputscale,
            constant_weight=constant if constant > 0 else 1.0,
            batch_shape=batch,
            dtype=torch.float32,
        )
        if scale == "exp":
            _learn_logarithms(kernel)
        else:
            size = torch.Size(batch)
            kernel = gpytorch.kernels.ScaleKernel(kernel, batch_shape=size).float()
            root = torch.full(size, math.sqrt(outputscale), dtype=torch.float32)
            kernel.outputscale = kernel.base_kernel.outputscale = root
            kernel.base_kernel.raw_outputscale.requires_grad_(learn_outputscale)
        kernel.raw_outputscale.requires_grad_(learn_outputscale)
        self.kernel = kernel.float()  # what GPyTorch has made on the way is of the default dtype
        self._of_directions = name == "cosine" or name.startswith("unit_")
        self.n_features = n_features
        self.n_classes = n_classes

    @property
    def outputscale(self) -> Tensor:
        """The factor of the whole kernel, () or (C,)."""
        inner = self.kernel.base_kernel
        scale: Tensor = self.kernel.outputscale
        return scale * inner.outputscale if isinstance(inner, gpytorch.kernels.ScaleKernel) else scale

    def gram(self, z: Tensor) -> Tensor:
        """Kernel matrices (T, 1 or C, N, N) of embeddings (T, N, D)."""
        return evaluate(self.kernel, self._rows(z))

    def cross(self, z: Tensor, query: Tensor) -> Tensor:
        """Kernel between (T, N, D) and (T, Q, D): (T, 1 or C, N, Q)."""
        return evaluate(self.kernel, self._rows(z), self._rows(query))

    def variance(self, query: Tensor) -> Tensor:
        """The diagonal at queries (T, Q, D): (T, 1 or C, Q)."""
        return evaluate(self.kernel, self._rows(query), diag=True)

    def prior(self, z: Tensor, mean: Tensor) -> GramPrior:
        """The prior of latents with this mean (scalar or (T or 1, C, 1)) at embeddings (T, N, D)."""
        return GramPrior(self.gram(z), mean, partial(self._queries, z))

    def _queries(self, z: Tensor, query: Tensor) -> Queries:
        """How query embeddings (T, Q, D) covary with rows (T, N, D); see `Prior.queries`."""
        return Queries(self.cross(z, query), self.variance(query))

    def _rows(self, z: Tensor) -> Tensor:
        """Embeddings with a class dimension; kernels of directions get one where all is zero (every rectifier off)."""
        if self._of_directions:
            silent = torch.linalg.vector_norm(z.detach(), ord=torch.inf, dim=-1, keepdim=True) == 0
            if bool(silent.any()):
                z = torch.where(silent, torch.ones_like(z), z)
        return z.unsqueeze(1)


def _learn_logarithms(kernel: gpytorch.kernels.Kernel) -> None:
    """Replace the softplus behind every positive hyper-parameter by an exponential, keeping the values."""
    for module in list(kernel.modules()):
        if not isinstance(module, gpytorch.kernels.Kernel):
            continue
        for raw, parameter in list(module.named_parameters(recurse=False)):
            value = module.constraint_for_parameter_name(raw).transform(parameter.detach())
            module.register_constraint(raw, Positive(transform=torch.exp, inv_transform=torch.log))
            module.initialize(**{raw: value.log()})
