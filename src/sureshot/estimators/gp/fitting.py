"""From labelled rows to what `GPClassifier` has learnt: plans, and features, posteriors and temperatures for each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.computing.memory import in_bytes, memory_budget
from sureshot.computing.threads import threads_for
from sureshot.estimators.classes.class_prior import under_prior, usual_prior
from sureshot.estimators.classes.temperature import (
    fit_average,
    fit_rule,
    log_probability,
    smoothed_score,
    tempered_average,
)
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp import options
from sureshot.estimators.gp.conditioning import ONE_FACTOR, condition
from sureshot.estimators.gp.features import FeatureMap, explicit_features
from sureshot.estimators.gp.few_changes import Before, befores, changes_kept, known_features, lies_far_outside
from sureshot.estimators.gp.fitted import GPFitted, LeftOutScores, averaged, evidence_of
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.nearby import weights_near
from sureshot.estimators.gp.noise import with_noise_of_features
from sureshot.estimators.gp.plan import Plan, choose_plans, keep_plan
from sureshot.estimators.gp.posterior_arrays import pack_posterior
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.family_search import TUNING_TOLERANCE
from sureshot.estimators.gp.tuning.stacking import most_members, stacking_weights
from sureshot.estimators.gp.weight_space import FromRows, roots_of, training_features, weight_space
from sureshot.estimators.rows.folds import by_folds
from sureshot.estimators.rows.readers import TableReader
from sureshot.estimators.rows.support import MANY_ROWS, Support, is_compared_whole
from sureshot.estimators.rows.validation import LabelledRows, weigh_classes
from sureshot.inference.inducing import kmeans_inducing
from sureshot.inference.label_regression import label_targets
from sureshot.kernels import feature_map, is_unit_norm
from sureshot.progress import stage, tracked

logger = logging.getLogger(__name__)

REFITTED_ROWS = 300
"""Of tables of several classes up to which rows are left out by refits: by their sites a softmax of many classes with
few rows says of labels that are noise what it has seen of them (20 classes of 4 rows: a log loss of 2.6, where new ones
have 3.4 at the temperature that this suggests, and 3.0 at that of refits). Five or ten rows a class of ten tables have
a log loss that is .004 and .001 lower, too."""
EXACT_LIMIT = 1500  # rows up to which a kernel without explicit features is used exactly
DEFAULT_INDUCING = 1000
CHOSEN = 0.7  # of the time, roughly, that learning takes has gone by when settings are chosen
ROWS_OF_AN_INPUT = 10  # up to which left-out rows are flattered; with more, to fit everything twice would take long
JUDGED = 0.7  # of that for fitting, when many rows have judged what was chosen
_AT_ONCE = 2**14  # left-out rows whose probabilities are computed together


def learn(settings: Settings, training: TrainingSet, known: GPFitted | None) -> GPFitted:
    """Learn from labelled rows; what is `known` of other rows keeps its settings, unless a row lies far outside."""
    n_classes = len(training.classes)
    if isinstance(training.reader, TableReader) and training.reader.spanned is not None:
        kernel = "cosine" if settings.kernel == "auto" else settings.kernel  # products are all that is known
        settings = replace(settings, standardize=False, kernel=kernel)  # coordinates are no columns
    if known is not None:
        settings = replace(settings, device=known.members[0].plan.device)
    weighted = weigh_classes(training.rows, settings.class_weight, training.classes, settings.inference)
    if known is not None and lies_far_outside(known, training.rows):
        logger.warning("a row lies far outside all rows before: the kernel and its settings were chosen anew")
        return learn(settings, training, None)
    if known is None:
        matrix = training.checked if settings.precomputed else None
        with stage(0.0, CHOSEN):
            plans = choose_plans(settings, weighted, n_classes, matrix, training.column_names)
        with stage(CHOSEN, 1.0):
            fitted = fit_members(settings, plans, weighted, training)
        chosen_by = len(fitted.rows.y), int(np.count_nonzero(fitted.frequencies))
        return fitted if settings.objective is None else replace(fitted, chosen_by=chosen_by)
    changes = changes_kept(known, training.classes, training.rows, settings.class_weight)
    known = known.settled if changes else known
    heaviest = known.heaviest_members(len(training.rows.y))
    if len(heaviest) < len(known.members):
        # An average's temperature comes on top of its members', a single member's in place of its own.
        own = heaviest[0].plan.temperature if len(heaviest) == 1 and known.calibrated else 1.0
        known, changes = replace(known, members=heaviest, temperature=known.temperature * own), 0
    plans = [
        keep_plan(member.plan, settings, weighted, n_classes, known.calibrated, changes > 0) for member in known.members
    ]
    temperature = known.temperature if known.calibrated else None
    found = update_members(settings, plans, weighted, training, temperature, known, changes)
    found = replace(found, chosen_by=known.chosen_by)
    if found.outgrown > known.outgrown:
        logger.warning(
            "kernel and settings were chosen by %d rows of %d classes, and there are %d of %d now: retune=True (on the "
            "command line --retune) chooses them anew",
            *(*found.chosen_by, len(found.rows.y), np.count_nonzero(found.frequencies)),
        )
    return found


def fit_members(
    settings: Settings,
    plans: Sequence[tuple[Plan, Support]],  # the heaviest first, each with the rows as its kernel sees them
    rows: LabelledRows,  # the training set's, the weights of their classes multiplied in
    training: TrainingSet,
    calibrated_temperature: float | None = None,
    known: GPFitted | None = None,  # of other rows, with the same plans: where to look for modes
    *,
    keeps: bool = False,  # the temperatures that are known, and inducing inputs
) -> GPFitted:
    """The posteriors for the plans, and the temperatures that suit them."""
    n_classes, tuned = len(training.classes), settings.objective is not None and calibrated_temperature is None
    judged = tuned and known is None and _flatter(settings, plans)
    if judged:
        plans = [(plan, support.judged_by_half()) for plan, support in plans]
    embeddings = is_unit_norm(torch.from_numpy(training.rows.x))
    directions = embeddings and len(plans) > 1 and all(plan.model.likelihood != "gaussian" for plan, _ in plans)
    members: list[Member] = []
    left_out: list[Tensor | None] = []
    before = [None] * len(plans) if known is None else befores(known, training.classes, rows, keeps)
    by_part = not is_compared_whole(plans[0][1])
    with stage(0.0, JUDGED if judged else 1.0):
        for (plan, support), of_other_rows in tracked(zip(plans, before, strict=True), "fitting", len(plans)):
            member, probabilities = _fit_member(
                settings,
                plan,
                support,
                tuned,
                of_other_rows,
                keeps,
                chosen_by_part=by_part,
                directions=directions,
            )
            members.append(member)
            left_out.append(probabilities)
    if known is None and by_part and support.is_telling and not directions:
        members, left_out = _weighed(members, left_out, support)
    if judged:
        with stage(JUDGED, 1.0):
            chosen = tracked(members, "fitting", len(members))
            members = [_with_all_rows(settings, member, rows, n_classes) for member in chosen]
    temperature, noise, score = members[0].plan.temperature, 0.0, members[0].plan.score
    if len(members) > 1:
        before_both = None if known is None else (known.temperature, known.label_noise)
        temperature, noise, score = _of_average(members, left_out, support, before_both, keeps=keeps)
    known_scores = None
    frequencies = np.bincount(rows.y, rows.weight, minlength=n_classes)
    prior = usual_prior(settings.class_prior, training.classes, frequencies, embeddings)
    if calibrated_temperature is None:
        known_scores = _left_out_scores(members, left_out, temperature, noise, support, (frequencies, prior))
    return GPFitted(
        classes=training.classes,
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        temperature=temperature if calibrated_temperature is None else calibrated_temperature,
        calibrated=calibrated_temperature is not None,
        log_evidence=evidence_of(members),
        members=tuple(members),
        score=score,
        class_prior=prior,
        weight_of_class=frequencies,
        class_weight=settings.class_weight,
        label_noise=noise if calibrated_temperature is None else 0.0,
        left_out=known_scores,
    )


def update_members(
    settings: Settings,
    plans: Sequence[tuple[Plan, Support]],
    rows: LabelledRows,
    training: TrainingSet,
    calibrated_temperature: float | None,
    known: GPFitted,
    changes: int,  # see `few_changes.changes_kept`
) -> GPFitted:
    """As `fit_members`, for Laplace's method and label regression put off: what left-out rows say, until it is asked.

    That is scores, the evidence and temperatures, which with many classes or rows cost most of an update. Temperatures
    and inducing inputs stay where few rows have changed (`few_changes`).
    """
    rest = partial(fit_members, settings, plans, rows, training, calibrated_temperature)
    if not all(plan.model.inference in ONE_FACTOR for plan, _ in plans) or settings.precomputed:
        return rest(known)
    keeps = changes > 0
    members = tuple(
        _fit_member(settings, plan, support, False, before, keeps, only_mode=True)[0]
        for (plan, support), before in zip(plans, befores(known, training.classes, rows, keeps), strict=True)
    )
    return GPFitted(
        classes=training.classes,
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        temperature=known.temperature,
        label_noise=known.label_noise,
        calibrated=known.calibrated,
        log_evidence=float("nan"),
        members=members,
        score=float("nan"),
        weight_of_class=np.bincount(rows.y, rows.weight, minlength=len(training.classes)),
        class_weight=settings.class_weight,
        rest=partial(rest, keeps=keeps),
        changes=changes,
    )


def _fit_member(
    settings: Settings,
    plan: Plan,
    support: Support,
    tuned: bool,
    before: Before | None,  # as it is known of other rows
    keeps: bool,  # its temperature, and inducing inputs
    *,
    chosen_by_part: bool = False,  # of the rows
    directions: bool = False,  # whether it is one of several of embeddings, weighed by label regression
    only_mode: bool = False,  # what is known of left-out rows stays as it is
) -> tuple[Member, Tensor | None]:
    """A member, and its probabilities (C, N) of the rows if they are left out, where it knows them.

    Relevance has seen these rows, so that predictions of one that is left out would be flattered: it knows none.
    """
    n_rows, width = support.x.shape
    explicit = feature_map(plan.kernel, width)
    finite = None if explicit is None else explicit.rank
    inducing = _by_inducing_inputs(settings, plan, support)
    # As many features as rows: refits find their modes in less time than training variances of all classes take.
    lean = directions and explicit is None and not inducing
    by_mode = lean and plan.rule == "plug_in" and plan.model.inference == "laplace"
    most = settings.n_inducing or DEFAULT_INDUCING
    _check_memory(settings, plan, support, most if inducing else finite or n_rows)
    probabilities = None
    regression = plan.model.likelihood == "gaussian" and plan.rule == "plug_in"
    looks_for_noise = regression and tuned and not keeps and (inducing or chosen_by_part)
    if looks_for_noise and not inducing and explicit is None and support.n_able > 0:
        with threads_for(n_rows):
            return _regressed(settings, plan, support)
    with threads_for(n_rows):
        known = None if before is None else known_features(before, support.x)
        if known is not None:
            features, roots, phi = known
        else:
            if inducing:
                features = FeatureMap(plan.kernel, _inducing_inputs(support, most))
            elif explicit is not None:
                features = explicit_features(plan.kernel, explicit, support.x)
            else:
                features = FeatureMap(plan.kernel, support.x)
            roots = roots_of(features, plan.model.searches)
            phi = training_features(features, support.x, roots)
        if looks_for_noise:
            plan, scale, _ = with_noise_of_features(plan, support, phi)
            if scale != 1:
                features, phi = replace(features, kernel=plan.kernel), phi * scale**0.5
                roots = None if roots is None else roots.scaled(scale)
        conditioned = condition(
            plan.model,
            phi,
            support.y,
            support.n_classes,
            support.weight,
            settings.generator(),
            only_means=plan.rule == "plug_in",
            exact=True,
            near=None if before is None else weights_near(before, features, roots),
            only_mode=only_mode or by_mode,
        )
        left_out = None
        if conditioned.sites is not None and not only_mode:
            few = explicit is None and not plan.model.one_latent and n_rows <= REFITTED_ROWS and tuned and not keeps
            few_refitted = few and plan.model.searches and plan.rule == "plug_in"
            by_refits = plan.model.sites_see_labels or by_mode or few_refitted
            left_out = (
                _refitted(plan, phi, support, conditioned.dual)
                if by_refits
                else conditioned.leave_one_out(support.left_out)
            )
        if plan.rule == "plug_in" and tuned and left_out is not None:
            plan = _with_temperature(settings, plan, support, *left_out, keeps=keeps)
        if left_out is not None and plan.scaling.relevance is None:
            probabilities = _said(plan, *left_out, support.n_classes)
        kind, weights, arrays = pack_posterior(conditioned.posterior)
        coefficients = aligned(weights if roots is None else weights @ roots.inverse.mT)
        space = weight_space(kind, arrays, phi, coefficients, roots)
    mean = aligned(arrays["prior_mean"])
    evidence, trace = conditioned.log_evidence, conditioned.trace
    return Member(plan, features, coefficients, mean, space, evidence, trace, settings.precomputed), probabilities


@torch.no_grad()
def _regressed(settings: Settings, plan: Plan, support: Support) -> tuple[Member, Tensor | None]:
    """As `_fit_member` for label regression by a kernel that is exact for the rows, with noise that is to be found.

    One factor says all that is asked of it now. Features are made when it is first asked for more than means.
    """
    plan, scale, found = with_noise_of_features(plan, support, None)
    assert found is not None
    left_out = found.latent, torch.zeros_like(found.latent)
    plan = _with_temperature(settings, plan, support, *left_out, keeps=False)
    probabilities = None if plan.scaling.relevance is not None else _said(plan, *left_out, support.n_classes)
    mean = aligned(label_targets(support.y, support.n_classes, support.weight)[1])
    arrays = {"prior_mean": mean, "precision": (support.weight / plan.model.noise)[None, None]}
    coefficients = aligned(found.dual[None] / scale)
    features = FeatureMap(plan.kernel, support.x)
    space = FromRows(features, support.x, "site", arrays, coefficients, None, plan.model.searches)
    evidence = found.log_evidence(support.weight, plan.model.noise, scale)
    return Member(plan, features, coefficients, mean, space, evidence, (), settings.precomputed), probabilities


def _said(plan: Plan, mean: Tensor, variance: Tensor, n_classes: int) -> Tensor:
    """Class probabilities (C, N) by latents of rows."""
    likelihood, t = plan.model.predictive_likelihood(), plan.temperature
    pieces = zip((mean / t).split(_AT_ONCE, 1), (variance / t**2).split(_AT_ONCE, 1), strict=True)
    return torch.cat([likelihood.predict(*piece, plan.rule)[:n_classes] for piece in pieces], 1)


def _flatter(settings: Settings, plans: Sequence[tuple[Plan, Support]]) -> bool:
    """Whether left-out rows, many of them, lie by inducing inputs that were made of them; see `judged_by_half`."""
    known = all(plan.model.inference in ONE_FACTOR for plan, _ in plans)
    near = MANY_ROWS <= len(plans[0][1].y) <= ROWS_OF_AN_INPUT * (settings.n_inducing or DEFAULT_INDUCING)
    return known and near and any(_by_inducing_inputs(settings, plan, support) for plan, support in plans)


def _with_all_rows(settings: Settings, member: Member, rows: LabelledRows, n_classes: int) -> Member:
    """What half of the rows have judged, with inducing inputs from all of them; the evidence is that of the former."""
    plan = member.plan
    support = Support.of(rows, n_classes, plan.scaling, plan.device)
    whole, _ = _fit_member(settings, plan, support, False, None, keeps=True, only_mode=True)
    return replace(whole, log_evidence=member.log_evidence)


def _refitted(plan: Plan, features: Tensor, support: Support, dual: Tensor | None) -> tuple[Tensor, Tensor]:
    """Latent means and variances (C, N) of rows by posteriors without their fold; means alone for the plug-in rule."""
    only_means = plan.rule == "plug_in"

    def said(stays: Tensor, weight: Tensor, fold: Tensor) -> Tensor:
        known = condition(
            plan.model,
            features[stays],
            support.y[stays],
            support.n_classes,
            weight,
            start=None if dual is None else dual[:, stays],
            only_means=only_means,
            tolerance=TUNING_TOLERANCE,
            only_mode=only_means and plan.model.inference in ONE_FACTOR,
        ).posterior
        queries = features[fold].unsqueeze(0)
        mean = known.query_mean(queries)
        spread = torch.zeros_like(mean) if only_means else known.query_variance(queries, queries.square().sum(-1))
        return torch.cat([mean, spread]).permute(2, 0, 1)

    mean, variance = by_folds(support.y, support.weight, support.left_out, said).unbind(1)
    return mean.mT, variance.mT


def _weighed(
    members: list[Member], left_out: list[Tensor | None], support: Support
) -> tuple[list[Member], list[Tensor | None]]:
    """Those that all rows choose, with the weights that these give them, the heaviest first.

    By probabilities of left-out rows (C, N) each, if all members know them. Their scales were chosen by a part of the
    rows, so nothing flatters them.
    """
    known = [part for part in left_out if part is not None]
    if len(members) == 1 or len(known) < len(members):
        return members, left_out
    scores = torch.stack([log_probability(part.gather(0, support.y[None])[0]) for part in known])
    weights = stacking_weights(scores, support.usable, most_members(len(support.y), support.n_able))
    kept = [k for k in weights.argsort(descending=True, stable=True).tolist() if weights[k] > 0]
    weighed = [replace(members[k], plan=replace(members[k].plan, weight=float(weights[k]))) for k in kept]
    return weighed, [left_out[k] for k in kept]


def _of_average(
    members: Sequence[Member],
    left_out: Sequence[Tensor | None],
    support: Support,
    before: tuple[float, float] | None,  # temperature and noise
    *,
    keeps: bool,  # these
) -> tuple[float, float, float]:
    """Temperature, label noise and score of an average, by its probabilities of left-out rows if members know them."""
    known = [part for part in left_out if part is not None]
    if len(known) < len(members):
        return *(before or (1.0, 0.0)), sum(member.plan.weight * member.plan.score for member in members)
    p = averaged(members, known)
    if before is None or not keeps:
        temperature, noise, pointwise = fit_average(p, support)
    else:
        temperature, noise = before
        pointwise = smoothed_score(log_probability(tempered_average(p, temperature, noise)), support)
    return temperature, noise, float(support.usable @ pointwise / support.usable.sum())


def _left_out_scores(
    members: Sequence[Member],
    left_out: Sequence[Tensor | None],
    temperature: float,
    noise: float,
    support: Support,
    of_classes: tuple[np.ndarray, np.ndarray | None],  # frequencies and prior, each (C,)
) -> LeftOutScores | None:
    """Of rows by the posterior of all others, where every member knows what it says of them."""
    known = [part for part in left_out if part is not None]
    total = float(support.usable.sum())
    if len(known) < len(members) or not total > 0:
        return None
    p = known[0]
    if len(known) > 1:
        p = tempered_average(averaged(members, known), temperature, noise)
    p, share = p / p.sum(0), support.usable / total
    frequencies, prior = of_classes
    p = p if prior is None else under_prior(p.mT, frequencies, prior).mT
    right = (p.argmax(0) == support.y).to(share)
    of_class = [torch.bincount(support.y, part, minlength=support.n_classes) for part in (share * right, share)]
    recall = (of_class[0] / of_class[1])[of_class[1] > 0]
    of_label = log_probability(p.gather(0, support.y[None])[0])
    return LeftOutScores(float(share @ right), float(recall.mean()), -float(share @ of_label))


def _with_temperature(
    settings: Settings, plan: Plan, support: Support, mean: Tensor, variance: Tensor, *, keeps: bool
) -> Plan:
    """The plan with the temperature that predicts left-out labels best, by latents (C, N) of rows left out, or its own.

    Relevance has seen these labels, which makes for a smaller one: the temperature that was found without them is kept.
    """
    likelihood, temperature = plan.model.predictive_likelihood(), plan.temperature
    if keeps:
        pointwise = smoothed_score(likelihood.log_plug_in(mean / temperature), support)
    else:
        default = options.starting_temperature(settings.kernel, support)
        temperature, pointwise = fit_rule(likelihood, mean, variance, support, "plug_in", default)
    usable = support.usable
    total = float(usable.sum())
    score = float((usable * pointwise).sum() / total) if total > 0 else plan.score
    if plan.scaling.relevance is not None:
        return replace(plan, temperature=max(temperature, plan.least_temperature))
    return replace(plan, temperature=temperature, score=score)


def _by_inducing_inputs(settings: Settings, plan: Plan, support: Support) -> bool:
    n_rows, width = support.x.shape
    finite = feature_map(plan.kernel, width) is not None
    return options.use_inducing(settings.approximation, finite, n_rows, EXACT_LIMIT)


def _inducing_inputs(support: Support, most: int) -> Tensor:
    """Of each class that has rows, `most` in all; of all rows together where classes are more than that."""
    if support.judges is not None:
        support = support.part(~support.judges)
    n_present = int((torch.bincount(support.y) > 0).sum())
    if most < n_present:
        return kmeans_inducing(support.x, torch.zeros_like(support.y), most)
    return kmeans_inducing(support.x, support.y, most // n_present)


def _check_memory(settings: Settings, plan: Plan, support: Support, rank: int) -> None:
    """Refuse before memory is taken, with the estimate and what to try; of so many features, or as many as rows."""
    n_rows, n_classes = len(support.y), support.n_classes
    rank = min(n_rows, rank)
    needed, available = 8.0 * plan.model.entries(n_rows, rank, n_classes), memory_budget(settings.memory_limit)
    if needed > available:
        raise MemoryError(
            f"fitting {n_rows} rows, {n_classes} classes and {rank} features would take about "
            f"{in_bytes(needed)}, and {in_bytes(available)} may be used: try approximation='inducing' with a "
            "smaller n_inducing, inference='laplace', fewer rows, or raise memory_limit."
        )
