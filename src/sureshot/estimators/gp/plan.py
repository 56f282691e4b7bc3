"""What to learn with: scaling, kernel, model and predictive rule, chosen from the labelled rows or kept from before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.approximations.by_name import Parts
from sureshot.computing.layout import aligned
from sureshot.computing.threads import one_thread
from sureshot.estimators.gp import options
from sureshot.estimators.gp.model import Model
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.choose import AVERAGED_ROWS, Choice, tune
from sureshot.estimators.gp.tuning.family_search import scaled
from sureshot.estimators.gp.tuning.objective import Objective
from sureshot.estimators.gp.tuning.spectral import clear_spectral_scaling
from sureshot.estimators.rows.clock import Clock
from sureshot.estimators.rows.labelled_rows import LabelledRows, sample_of
from sureshot.estimators.rows.preprocessing import Scaling, fit_scaling, mention_constant, mention_wild
from sureshot.estimators.rows.ranks import Ranks
from sureshot.estimators.rows.readers import Reader
from sureshot.estimators.rows.support import Support
from sureshot.inference import schemes_for
from sureshot.kernels import Expression, Scale, is_unit_norm
from sureshot.kernels.dense import as_expression
from sureshot.likelihoods.base import PredictiveRule


@dataclass(frozen=True)
class Locality:
    """How local regressions become probabilities or densities, see `LabelLink` and `NumberLink`."""

    n_neighbours: int
    gain: float
    doubt: float = 1.0  # of probabilities
    batch: int | None = None  # see `Past`; None: time does not matter
    counted: bool = False  # whether time is their number

    def check_parts(self) -> None:
        """ValueError for numbers that are none."""
        positive = all(0 < number < math.inf for number in (self.n_neighbours, self.gain, self.doubt))
        if not positive or (self.batch is not None and self.batch < 0):
            raise ValueError("malformed settings of nearest neighbours")


@dataclass(frozen=True)
class Plan:
    """Everything that is chosen before the posterior is computed."""

    scaling: Scaling
    kernel: Scale
    model: Model
    rule: PredictiveRule
    temperature: float
    score: float  # mean leave-one-out log probability in nats; NaN where no row could be left out
    weight: float = 1.0  # its share of an average
    # Output scale and noise of least squares as they were chosen, before features or rows asked for more noise.
    as_chosen: tuple[float, float] | None = None
    local: Locality | None = None  # of a member that sees nearest rows only
    parts: Parts | None = None  # of an approximation that was asked for by name
    share: float = 1.0  # of the rows that are learnt from, as `sample_of` draws them

    def check_parts(self) -> None:
        """ValueError for choices that are none."""
        if not isinstance(self.kernel, Scale) or self.kernel.outputscale.ndim:
            raise ValueError("the kernel has no output scale")
        if not 0 < self.share <= 1 or not 0 < self.temperature < math.inf or not self.weight > 0:
            raise ValueError("malformed temperature or weight")
        if self.as_chosen is not None and not all(0 < number < math.inf for number in self.as_chosen):
            raise ValueError("malformed output scale and noise")
        if self.model.inference not in schemes_for(self.model.likelihood):
            raise ValueError("malformed likelihood or inference")

    @property
    def has_seen(self) -> bool:
        """Whether left-out predictions have seen their rows, by which many numbers were learnt."""
        by_columns = self.scaling.relevance is not None and self.local is None
        return by_columns or (self.parts is not None and self.parts.learnt)

    @property
    def device(self) -> torch.device:
        """Where the kernel is, and all that is learnt with it."""
        device: torch.device = self.kernel.outputscale.device
        return device


SupportOf = Callable[[LabelledRows, Scaling, torch.device], Support]
"""Labelled rows as kernels see them under a map of the columns, on a device."""


def choose_plans(
    settings: Settings,
    models: tuple[Model, ...],  # to choose from, the default first
    objective: Objective,
    rows: LabelledRows,  # that global members see, the weights of their classes multiplied in
    support_of: SupportOf,
    matrix: np.ndarray | None,  # (n, n), the kernel matrix, if it is precomputed; rows are then positions in it
    scaling: Scaling,  # of columns
    beside_local: bool = False,  # whether members join them in which columns have length-scales of their own
) -> list[tuple[Plan, Support]]:
    """The plans for labelled rows that are to be averaged, or the only one, all choices made from the rows.

    Each with the rows as its kernel sees them.
    """
    options.check_objective(settings.objective, models[0].inference)
    support = support_of(rows, scaling, settings.device)
    embeddings = settings.kernel == "auto" and is_unit_norm(support.x)
    by_rows = settings.objective not in (None, "evidence")
    if embeddings and settings.averages and by_rows and len(support.y) <= AVERAGED_ROWS:
        with one_thread():
            scaling = replace(scaling, spectral=clear_spectral_scaling(support, objective))
        support = support_of(rows, scaling, settings.device)
    free = settings.standardize == "auto" and bool((scaling.scale != 1).any())
    ranks = columns_ranks(support) if free and settings.averages else None
    column_scale = aligned(scaling.scale, settings.device) if free else None
    families = options.families_for(
        settings.kernel,
        support,
        None if matrix is None else aligned(matrix, settings.device),
        column_scale,
        settings.averages,
        ranks,
    )
    directions = options.directions_for(support, column_scale) if settings.averages else ()
    if settings.objective is None:
        kernel = scaled(families[0].build(1.0), 1.0)
        found: tuple[Choice, ...] = (Choice(kernel, models[0], 1.0, math.nan),)
    else:
        stand_ins = tuple(model.stand_in() for model in models)
        rng = np.random.default_rng(settings.seed)
        with one_thread():  # the subset is small by construction
            found = tune(
                support,
                families,
                stand_ins,
                objective,
                rng,
                settings.n_jobs,
                settings.averages,
                settings.weighs_columns and not beside_local,
                embeddings,
                directions,
            )
    plans = [_plan(setting, models[0], settings.predictive, scaling) for setting in found]
    return [
        (plan, support if plan.scaling is scaling else support_of(rows, plan.scaling, settings.device))
        for plan in plans
    ]


def _plan(found: Choice, default: Model, rule: PredictiveRule, scaling: Scaling) -> Plan:
    """A setting with the inference that was asked for, which may have had a stand-in, and its own scaling."""
    model = found.model
    if model.likelihood == default.likelihood:
        model = replace(default, noise=model.noise)
    if found.column_weights is not None:
        scaling = scaling.weighted(found.column_weights.cpu().numpy())
    if found.ranks is not None:
        scaling = replace(scaling, ranks=found.ranks)
    if found.relevance is not None:
        scaling = replace(scaling, relevance=found.relevance.cpu().numpy())
    return Plan(scaling, found.kernel, model, rule, found.temperature, found.score, found.weight)


def keep_plan(
    plan: Plan, settings: Settings, rows: LabelledRows, n_classes: int, calibrated: bool
) -> tuple[Plan, Support]:
    """The plan for rows of other classes, and these rows as its kernel sees them.

    What changes is what another number of classes needs: the likelihood, and the centre of embeddings.
    """
    if plan.as_chosen is not None and not calibrated:
        plan = _as_chosen(plan, *plan.as_chosen)  # or updates on the way would each add noise
    if isinstance(settings.kernel, str):
        plan = _recentred(plan, sample_of(rows, plan.share))
    support = Support.of(sample_of(rows, plan.share), n_classes, plan.scaling, settings.device)
    return _adapted(plan, settings, n_classes), support


def _as_chosen(plan: Plan, output_scale: float, noise: float) -> Plan:
    kernel = plan.kernel.replace(outputscale=torch.full_like(plan.kernel.outputscale, output_scale))
    return replace(plan, kernel=kernel, model=replace(plan.model, noise=noise), as_chosen=None)


def _recentred(plan: Plan, rows: LabelledRows) -> Plan:
    """The plan with its kernel centred on these rows, if it has a centre: that of other classes suits less."""

    def centred(name: str, value: Tensor) -> Tensor:
        return options.center_of(aligned(plan.scaling(rows.x))).to(value) if name.split(".")[-1] == "center" else value

    return replace(plan, kernel=plan.kernel.map(centred))


def _adapted(plan: Plan, settings: Settings, n_classes: int) -> Plan:
    """The plan with the likelihood of a fit with as many classes, where that of two and that of more differ."""
    current = plan.model
    default = options.models_for(settings.likelihood, settings.inference, n_classes, **settings.model_settings)[0]
    if current.scheme.is_exact or current.likelihood == default.likelihood:
        return plan
    return replace(plan, model=replace(default, noise=current.noise))


def columns_ranks(support: Support) -> Ranks | None:
    """Of standardised columns, unless they are as good as normal."""
    x = support.x.cpu().numpy()
    ranks = Ranks.of(x, support.weight.cpu().numpy())
    return ranks if ranks.bends(x) else None


def columns_scaling(
    settings: Settings, rows: LabelledRows, names: Sequence[str] | None, clock: Clock | None = None
) -> Scaling:
    """Of the columns (D,), whose `names` are for messages."""
    if settings.precomputed:
        return Scaling(np.arange(1), np.zeros(1), np.ones(1))
    is_given = isinstance(settings.kernel, Kernel | Expression)
    own_units = settings.standardize == "auto" and is_given and as_expression(settings.kernel).has_periods
    scaling = fit_scaling(rows.x, rows.weight, False if own_units else settings.standardize)
    if clock is not None:
        scaling = scaling.with_time(clock.place, rows.x[:, clock.place])
    mention_constant(scaling, rows.x, names)
    mention_wild(scaling, rows.x, names)
    return scaling


def relevance_of(plans: Sequence[Plan], reader: Reader, width: int) -> np.ndarray:
    """Factors of the columns that a reader makes rows of this width of, averaged by the weights of plans."""
    found = np.zeros(width)
    for plan in plans:
        found[plan.scaling.kept] += plan.weight * (1.0 if plan.scaling.relevance is None else plan.scaling.relevance)
    found = found[: reader.arrival]
    return found if reader.encoder is None else reader.encoder.by_source(found)
