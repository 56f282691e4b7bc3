"""What a setting on "auto" may become, once the data is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import normalize

from sureshot.approximations.by_name import BY_NAME
from sureshot.estimators.gp.model import LEAST_SQUARES, Model
from sureshot.estimators.gp.tuning.family_search import LENGTHSCALES, Family
from sureshot.estimators.rows.precomputed import PrecomputedKernel
from sureshot.estimators.rows.preprocessing import share_a_unit
from sureshot.estimators.rows.ranks import Ranks
from sureshot.estimators.rows.support import Support
from sureshot.inference import SCHEMES, schemes_for
from sureshot.kernels import Expression, is_unit_norm, natural_lengthscale, preset_kernel
from sureshot.kernels.dense import own_kernel
from sureshot.kernels.presets import LENGTHSCALE_NAMES, UNIT_SPHERE_NAMES

NEAREST_NEIGHBOURS = "nearest_neighbours"
LOCAL_KERNELS = ("rbf", "matern12", "matern32", "matern52", "laplacian")
"""Presets whose leaf has a length-scale for each column, which local members learn."""
DIRECTIONS = ("cosine", "unit_matern32", "unit_rbf")
"""Kernels of embeddings: the first is linear in them, the others bend."""
INTERACTIONS = "interactions_matern32"
INTERACTING_COLUMNS = 64  # at most: it takes so many times as long as the others
RELEVANCE_KERNEL = "matern32"  # by which columns get length-scales of their own; smoother ones stop at poorer maxima
ONE_SHOT_TEMPERATURE = {
    "cosine": 0.27,
    "unit_rbf": 0.2,
    "unit_matern32": 0.2,
    "rbf": 0.45,
    "matern12": 0.25,
    "matern32": 0.35,
    "matern52": 0.4,
    "additive_matern32": 0.35,
    "interactions_matern32": 0.35,
    "linear": 0.9,
    "polynomial1": 0.9,
}
"""Factors of `one_shot_temperature` by kernel (docs/results/one-shot-defaults.md)."""
ONE_SHOT_TEMPERATURE_ELSEWHERE = 0.5  # that of kernels that are not in the table
USUAL_COLUMNS, USUAL_DIRECTIONS = 37, 300  # numbers of independent columns of tables and of embeddings
BY_COLUMNS = -0.4  # the factor is multiplied by this power of their number, relative to the usual one
MOST_COMPARED = 300  # rows whose distances say how many columns are independent
LEAST_SHARE = 0.5  # of columns of one unit that must count in distances, each by its variance
EQUAL_SHARE = 0.95  # from which on columns are as good as standardised: of variances that differ by a fifth
INTERCEPT_OF_EMBEDDINGS = 0.1
"""Its prior variance, relative to that of the rest. Centred rows need one only where classes differ in their numbers of
rows, which a large intercept would learn, and a temperature below 1 then raise to a power."""


def models_for(likelihood: str, inference: str, n_classes: int, **settings: Any) -> tuple[Model, ...]:
    """The models to choose from, the default first."""
    if likelihood != "auto" and n_classes > 2 and Model(likelihood, inference).one_latent:
        raise ValueError(
            f"likelihood={likelihood!r} is for two classes, and there are {n_classes}: "
            "use 'softmax', 'one_vs_each' or 'logistic_softmax', or leave it on 'auto'."
        )
    if likelihood == "auto":
        if inference in ("auto", "laplace"):
            name = "logistic" if n_classes <= 2 else "softmax"
            default = Model(name, "laplace", **settings)
            return (default,) if inference == "laplace" else (default, replace(LEAST_SQUARES, **settings))
        return (Model("logistic" if n_classes <= 2 else "one_vs_each", inference, **settings),)
    schemes = schemes_for(likelihood)
    default = Model(likelihood, schemes[0], **settings)
    if default.scheme.is_exact and inference not in ("auto", "laplace"):
        raise ValueError(
            f"likelihood={likelihood!r} has an exact posterior, so inference={inference!r} does not apply: use 'auto'."
        )
    if default.scheme.is_exact or inference == "auto":
        return (default,)
    if inference not in schemes:
        raise ValueError(
            f"inference={inference!r} does not work with likelihood={likelihood!r}: use one of "
            f"{', '.join(repr(s) for s in schemes)}, or 'auto'."
        )
    return (Model(likelihood, inference, **settings),)


def check_objective(objective: Any, inference: str) -> None:
    """Refuse an objective that the inference does not have."""
    if objective == "evidence" and SCHEMES[inference].samples:
        raise ValueError(
            f"objective='evidence' does not work with inference={inference!r}: samples of the posterior give the "
            "gradient of the evidence and not its value, and mean field's bound in its place prefers too small output "
            "scales. Use objective='leave_one_out', or inference='mean_field' or 'laplace'."
        )


def families_for(
    kernel: str | Kernel | Expression,
    support: Support,
    gram: Tensor | None = None,
    column_scale: Tensor | None = None,
    several: bool = False,
    ranks: Ranks | None = None,
) -> tuple[Family, ...]:
    """The kernel families to choose from for labelled rows, or to average `several` of.

    For an average of "auto" there is one more, of columns that interact, and all are tried on `ranks` if these are
    given. Where columns were standardised by choice (`column_scale`, their standard deviations) and look as if they had
    one unit, like the pixels of an image, every named family is tried on columns that keep their relative sizes as
    well; if no row can be left out to say which is better, an average has these alone, unless a few columns would make
    up all distances. Columns that came standardised have no other sizes to keep.
    """
    if gram is not None:
        precomputed = PrecomputedKernel(gram)
        return (Family(lambda _: precomputed, (1.0,), ONE_SHOT_TEMPERATURE_ELSEWHERE),)
    if isinstance(kernel, Kernel | Expression):
        given = own_kernel(kernel).to(support.x)
        return (Family(lambda _: given, (1.0,), ONE_SHOT_TEMPERATURE_ELSEWHERE),)
    x = support.x
    names = automatic_kernels(x) if kernel == "auto" else (kernel,)
    by_column = {RELEVANCE_KERNEL if kernel == "auto" else kernel} & set(LENGTHSCALE_NAMES)
    families = tuple(replace(named_family(name, support), per_column=name in by_column) for name in names)
    interacting: tuple[Family, ...] = ()
    if several and 1 < x.shape[1] <= INTERACTING_COLUMNS and not is_unit_norm(x):
        interacting = (named_family(INTERACTIONS, support),)
    of_ranks = () if ranks is None else tuple(replace(family, ranks=ranks) for family in (*families, *interacting))
    standardised = (*families, *interacting, *of_ranks)
    if column_scale is None or not share_a_unit(column_scale):
        return standardised
    share = _effective_share(column_scale)
    if share >= EQUAL_SHARE:
        return standardised
    weights = column_scale / column_scale.square().mean().sqrt()
    alone = several and not support.can_select_kernels and share >= LEAST_SHARE
    by_size = (*families, *interacting) if alone else families
    weighted = tuple(replace(family, column_weights=weights) for family in by_size)
    return weighted if alone else (*weighted, *standardised)


def directions_for(support: Support, column_scale: Tensor | None) -> tuple[Family, ...]:
    """Kernels of the directions of rows of a table, for an average, if rows look like an encoder's.

    That is, columns seem to share a unit (`column_scale`, their standard deviations) and are no fewer than the rows.
    """
    if column_scale is None or len(support.y) > support.x.shape[1] or not share_a_unit(column_scale):
        return ()
    return tuple(replace(named_family(name, support), column_weights=column_scale) for name in DIRECTIONS)


def _effective_share(weights: Tensor) -> float:
    """The effective number of columns, by the variances that `weights` (D,) give them, relative to all."""
    variances = weights.square()
    return float(variances.mean().square() / variances.square().mean())


def automatic_kernels(x: Tensor) -> tuple[str, ...]:
    """Names of the families that suit the inputs: angles for embeddings, smooth and rough distances for tables.

    Of embeddings the first is linear in them.
    """
    if is_unit_norm(x):
        return DIRECTIONS
    return ("rbf", "linear", "matern32", "matern12")


def named_family(name: str, support: Support) -> Family:
    """A preset at any length-scale; unit-sphere kernels of embeddings are centred on the training rows."""
    x, width = support.x, support.x.shape[1]
    embeddings = name in UNIT_SPHERE_NAMES and is_unit_norm(x)
    natural = natural_lengthscale(name, width)
    has_lengthscale = name in LENGTHSCALE_NAMES

    def arguments(relative: float) -> dict[str, Any]:
        return {
            "lengthscale": natural * relative if has_lengthscale else None,
            "center": center_of(x) if embeddings else None,
            "constant_weight": INTERCEPT_OF_EMBEDDINGS if embeddings else 1.0,
        }

    return Family(
        lambda relative: preset_kernel(name, width, **arguments(relative)).to(x.device),
        LENGTHSCALES if has_lengthscale else (1.0,),
        one_shot_temperature(name, support),
        name,
    )


def center_of(x: Tensor) -> Tensor:
    """The mean (D,) of rows of unit length (N, D), those of zeros apart."""
    return x[x.any(-1)].mean(0)


def one_shot_temperature(kernel: str | Kernel | Expression, support: Support) -> float:
    """Where the plug-in rule's temperature starts, and stays when no row can be left out.

    The more independent columns there are, the farther apart classes lie; that is asked only where nothing else can be.
    Two embeddings have a single distance, which says nothing of it. The number of their classes would say as much of
    how alike they are, if all tasks were as easy as those that it was measured on. (docs/results/one-shot-defaults.md)
    """
    if not isinstance(kernel, str) or kernel not in ONE_SHOT_TEMPERATURE:
        return ONE_SHOT_TEMPERATURE_ELSEWHERE
    factor, directions = ONE_SHOT_TEMPERATURE[kernel], kernel in UNIT_SPHERE_NAMES
    if support.can_select_kernels or (directions and len(support.y) < 3):
        return factor
    x, usual = (normalize(support.x), USUAL_DIRECTIONS) if directions else (support.x, USUAL_COLUMNS)
    return float(factor * (independent_columns(x, support.y) / usual) ** BY_COLUMNS)


def independent_columns(x: Tensor, y: Tensor) -> float:
    """How many independent normal columns would make distances between rows (N, D) as even as they are, at most D.

    Squared distances over so many have a variance of two parts in them of their squared mean. Neighbouring pixels say
    much the same: ten photographs of 3072 columns are as unevenly far apart as rows of a dozen. Rows of one class (N,)
    are nearer to each other, and not compared.
    """
    n_rows, width = x.shape
    places = torch.linspace(0, n_rows - 1, min(n_rows, MOST_COMPARED), dtype=torch.float64).round().long()
    squared = torch.pdist(x[places]).square()[torch.pdist(y[places, None].double()) > 0]
    if len(squared) < 2:
        return width
    mean, variance = float(squared.mean()), float(squared.var())
    return min(width, 2 * mean**2 / variance) if 0 < variance < math.inf and mean > 0 else width


def starting_temperature(kernel: str | Kernel | Expression, support: Support) -> float:
    """`one_shot_temperature` of a kernel argument."""
    first = automatic_kernels(support.x)[0] if isinstance(kernel, str) and kernel == "auto" else kernel
    return one_shot_temperature(first, support)


def use_inducing(approximation: str, finite: bool, n_rows: int, limit: int) -> bool:
    """Whether to stand in inducing inputs for the rows, by a kernel that has a `finite` rank or has not."""
    if approximation == "low_rank" and not finite:
        raise ValueError(
            "approximation='low_rank' needs a kernel with explicit features ('cosine', 'linear', 'polynomial1', "
            "'polynomial2'): use approximation='inducing' for this kernel."
        )
    if approximation == "auto":
        return not finite and n_rows > limit
    return approximation == "inducing" or approximation in BY_NAME
