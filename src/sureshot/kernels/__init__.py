"""Kernels as values: expressions that print as mathematics, evaluate in batches, and convert to and from GPyTorch.

* `RBF`, `Matern`, `RationalQuadratic`, `GammaExponential`, `Laplacian`, `Periodic`, `Linear`, `CenteredLinear`,
  `Brownian`, `Cosine`, `Polynomial`, `Constant` and `SpectralMixture` are the leaves; ``+``, ``*``, `Scale`,
  `Columns`, `Additive`, `Interactions` and `UnitSphere` compose them.
* `make_kernel` gives a preset (`KERNEL_NAMES`) as a GPyTorch kernel, `preset_kernel` as an expression; any GPyTorch
  kernel works wherever a kernel is accepted.
* `evaluate` gives a kernel's matrix as a plain, exactly symmetric tensor, `describe` its formula.
* `SpectrumFeatures`, `SubsequenceFeatures` (strings), `MarkovFisherFeatures` (sequences) and `MixtureFisherFeatures`
  (rows, bags) are features for scikit-learn pipelines, whose inner products are kernels.
* `Expression.to_json` and `kernel_from_json` turn an expression into data and back.
"""

from typing import TYPE_CHECKING

from sureshot.kernels.compositions import Additive, Columns, Interactions, Product, Scale, Sum, UnitSphere
from sureshot.kernels.dense import GPyTorchKernel, describe, evaluate
from sureshot.kernels.expression import KINDS, Expression, kernel_from_json
from sureshot.kernels.gpytorch_kernels import (
    BrownianKernel,
    CenteredLinearKernel,
    CosineKernel,
    FirstOrderAdditiveKernel,
    GammaExponentialKernel,
    InteractionsKernel,
    LaplacianKernel,
    ScaledPolynomialKernel,
    SpectralMixtureKernel,
    UnitSphereKernel,
)
from sureshot.kernels.leaves import (
    RBF,
    Brownian,
    CenteredLinear,
    Constant,
    Cosine,
    GammaExponential,
    Laplacian,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
)
from sureshot.kernels.presets import KERNEL_NAMES, make_kernel, natural_lengthscale, preset_kernel
from sureshot.kernels.spectral_mixture import SpectralMixture
from sureshot.kernels.unit_sphere import is_unit_norm, unit_rows
from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.kernels.fisher import MarkovFisherFeatures, MixtureFisherFeatures
    from sureshot.kernels.strings import SpectrumFeatures, SubsequenceFeatures

__all__ = [
    "KERNEL_NAMES",
    "KINDS",
    "RBF",
    "Additive",
    "Brownian",
    "BrownianKernel",
    "CenteredLinear",
    "CenteredLinearKernel",
    "Columns",
    "Constant",
    "Cosine",
    "CosineKernel",
    "Expression",
    "FirstOrderAdditiveKernel",
    "GPyTorchKernel",
    "GammaExponential",
    "GammaExponentialKernel",
    "Interactions",
    "InteractionsKernel",
    "Laplacian",
    "LaplacianKernel",
    "Linear",
    "MarkovFisherFeatures",
    "Matern",
    "MixtureFisherFeatures",
    "Periodic",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Scale",
    "ScaledPolynomialKernel",
    "SpectralMixture",
    "SpectralMixtureKernel",
    "SpectrumFeatures",
    "SubsequenceFeatures",
    "Sum",
    "UnitSphere",
    "UnitSphereKernel",
    "describe",
    "evaluate",
    "is_unit_norm",
    "kernel_from_json",
    "make_kernel",
    "natural_lengthscale",
    "preset_kernel",
    "unit_rows",
]

__getattr__ = imported_when_asked_for(__name__)  # of features for pipelines, which need much of scikit-learn
