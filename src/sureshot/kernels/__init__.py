"""Kernels on top of `gpytorch.kernels`: presets, the unit sphere, plain tensors, features.

* `make_kernel` builds a preset (`KERNEL_NAMES`); any other GPyTorch kernel works wherever a kernel is
  accepted.
* `evaluate` gives its matrix as a plain, exactly symmetric tensor.
* `feature_map` gives explicit features when the kernel has finite rank.
* `kernel_config` and `kernel_state` turn a kernel into data; `kernel_from_config` builds it again.
"""

from sureshot.kernels.config import kernel_config, kernel_from_config, kernel_state, load_kernel_state
from sureshot.kernels.dense import evaluate
from sureshot.kernels.features import FeatureMap, feature_map
from sureshot.kernels.presets import (
    KERNEL_NAMES,
    ScaledPolynomialKernel,
    make_kernel,
    natural_lengthscale,
)
from sureshot.kernels.unit_sphere import CosineKernel, UnitSphereKernel, is_unit_norm, unit_rows

__all__ = [
    "KERNEL_NAMES",
    "CosineKernel",
    "FeatureMap",
    "ScaledPolynomialKernel",
    "UnitSphereKernel",
    "evaluate",
    "feature_map",
    "is_unit_norm",
    "kernel_config",
    "kernel_from_config",
    "kernel_state",
    "load_kernel_state",
    "make_kernel",
    "natural_lengthscale",
    "unit_rows",
]
