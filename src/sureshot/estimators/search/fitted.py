"""What `KernelSearchClassifier` has learnt: weighted particles, and the rows that they are conditioned on.

Rows are kept in the order in which they were taken in, a row of weight w as w rows. With the structures, parameters and
Polya-Gamma variables of the particles they make everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.computing.layout import aligned
from sureshot.computing.threads import one_thread
from sureshot.estimators.classes.class_fitted import ClassFitted, ClassPredictor, NoInfluence, left_out_by_folds
from sureshot.estimators.classes.uncertainty import average_and_entropy, entropy
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.rows.labelled_rows import LabelledRows, merged_rows
from sureshot.estimators.rows.preprocessing import Scaling, kernel_inputs, within_range
from sureshot.estimators.search.rule import INTEGRAL, Chosen, SearchRule, chosen_rule
from sureshot.estimators.search.settings import SearchSettings
from sureshot.kernels import Expression
from sureshot.likelihoods import Logistic, OneVsEach
from sureshot.structure.canonical import canonical
from sureshot.structure.leave_one_out import left_out, of_classes
from sureshot.structure.one_class import one_class_probabilities
from sureshot.structure.prediction import averaged_probabilities, moments, unexplained_variance
from sureshot.structure.removal import without
from sureshot.structure.smc import SmcState
from sureshot.structure.structure import Structure
from sureshot.structure.whitened import Whitened
from sureshot.structure.without_rows import moments_without

_FARTHEST = 1e6  # of a kernel input: products of sixteen leaves are numbers still


@dataclass(frozen=True)
class SearchStep:
    """What a batch did, in JSON values."""

    n_rows: int  # behind it
    effective_sample_sizes: tuple[float, ...]  # before resampling, of each part of the batch
    ancestors: tuple[int, ...]  # of each particle, its place before the batch
    resampled: bool
    acceptance: dict[str, float]  # by kind of move
    log_evidence: float
    structures: tuple[tuple[float, str], ...]  # mass and structure, heaviest first
    waits: bool = False  # whether the rows behind it are of one class, and structures those of the prior


@dataclass(frozen=True)
class WeightedKernel:
    """A particle as a user sees it."""

    weight: float
    structure: str
    kernel: Expression  # of standardised columns
    nugget: float  # variance that belongs to a row alone


Callback = Callable[[SearchStep], Any]


@dataclass(frozen=True)
class SearchPredictor(ClassPredictor):
    """Particles, and the rule by which their latents become probabilities."""

    scaling: Scaling
    state: SmcState
    chosen: Chosen = INTEGRAL

    @cached_property
    def weights(self) -> Tensor:
        """Of the particles (M,)."""
        return self.state.log_weights.exp()

    @property
    def n_classes(self) -> int:
        """Those that have no rows among them."""
        return self.state.n_classes

    @property
    def waits(self) -> bool:
        """Whether there is nothing to tell apart: no rows, or rows of one class."""
        return not len(self.state.contrasts)

    def on(self, state: SmcState) -> SearchPredictor:
        """By the same rule, of another state."""
        return replace(self, state=state, chosen=self.chosen.on(state))

    @property
    def queries_at_once(self) -> int:
        state, n_latents = self.state, 1 if self.state.n_classes == 2 else self.state.n_classes
        data = len(state.contrasts) if state.inducing is None else len(state.inducing) * n_latents
        per_query = len(state.particles) * (3 * data + n_latents) * n_latents
        return max(1, AT_ONCE // max(1, per_query))

    def inputs(self, kept: np.ndarray) -> Tensor:
        return inputs_of(kept, self.scaling)

    def moments(self, queries: Tensor) -> tuple[Tensor, ...]:
        """Means (M, L, Q), covariances (M, Q, L, L) and the posterior's means (M, L, Q).

        While it waits, probabilities (Q, C).
        """
        if self.waits:
            return (one_class_probabilities(self.state, queries, self.n_classes),)
        mean, covariance = moments(self.state, queries)
        return self.chosen.means(self.state, queries, mean), covariance, mean

    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        if self.waits:
            return moments[0]
        mean, covariance, own = moments
        return self.chosen.probabilities(mean, covariance, self.weights, temperature, own, self._absent)

    @cached_property
    def _absent(self) -> Tensor:
        """Which classes (C,) have no rows."""
        return torch.bincount(self.state.y, minlength=self.n_classes) == 0

    @property
    def order(self) -> Tensor:
        """Places of the particles (M,), heaviest first."""
        return self.weights.argsort(descending=True, stable=True)

    def particle_probabilities(self, queries: Tensor, temperature: float) -> Tensor:
        """Class probabilities under each particle (Q, M, C), the heaviest first."""
        if self.waits:
            return self.moments(queries)[0].unsqueeze(1).expand(-1, len(self.weights), -1)
        alone, rule = queries.new_ones(1), self.chosen.of_latents
        return torch.stack(
            [
                averaged_probabilities(mean.unsqueeze(0), covariance.unsqueeze(0), alone, temperature, rule)
                for mean, covariance in zip(*(part[self.order] for part in self.moments(queries)[:2]), strict=True)
            ],
            1,
        )

    def latents(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the mixture of particles."""
        means, covariance = moments(self.state, queries)
        variances = covariance.diagonal(dim1=-2, dim2=-1).mT
        mean = torch.einsum("m,mlq->ql", self.weights, means)
        spread = torch.einsum("m,mlq->ql", self.weights, variances + (means - mean.mT).square())
        if self.n_classes == 2:
            return torch.cat([-mean / 2, mean / 2], -1), (spread / 4).expand(-1, 2)
        return mean, spread

    def outlier_scores(self, queries: Tensor) -> Tensor:
        """Which share of the latents' prior variance the data leave unknown."""
        return unexplained_variance(self.state, queries, moments(self.state, queries)[1])

    def entropies(self, queries: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        if self.waits:
            total = entropy(self.probabilities(self.moments(queries), temperature), -1)
            return total, total if self.n_classes == 1 else self._drawn(queries, 1.0)[1].minimum(total)
        average, aleatoric = self._drawn(queries, temperature)
        return entropy(average, 1), aleatoric

    def _drawn(self, queries: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Probabilities (Q, C) by the latents' whole posterior, and the mean entropy (Q,) of what is drawn from it."""
        means, covariances = moments(self.state, queries)
        likelihood = Logistic() if means.shape[1] == 1 else OneVsEach()
        average, aleatoric = average_and_entropy(
            means, covariances, lambda latents: likelihood.plug_in(latents / temperature), self.weights.tolist()
        )
        return average.mT, aleatoric

    def left_out(self, temperature: float) -> tuple[Tensor, Tensor]:
        """Probabilities (N, C) and outlier scores (N,) of the rows of the state, each without itself and its copies.

        In closed form, of collapsed latents.
        """
        state = self.state
        with one_thread():
            out = left_out(state)
            mean = self.chosen.means_left_out(state, out)
            p = self.chosen.probabilities(mean, out.covariance, out.weights, temperature, out.mean, self._absent)
            asked = out.copies.first
            unexplained = unexplained_variance(state, state.x[asked], of_classes(state, out), out.weights)
        return p[out.copies.place], unexplained[out.copies.place]

    def probabilities_without(self, queries: Tensor, sets: list[Tensor], temperature: float) -> Tensor:
        """Class probabilities (Q, E, C) without each of E sets of rows.

        The Polya-Gamma variables of the other rows stay, where kernels are seen.
        """
        state = self.state
        with one_thread():
            found = moments_without(state, queries, sets)
            mean = self.chosen.means_without(state, queries, sets, found.mean)
            p = self.chosen.probabilities(
                mean.flatten(2),
                found.covariance.flatten(1, 2),
                found.weights.repeat(1, len(queries)),
                temperature,
                found.mean.flatten(2),
                self._absent,
            )
        return p.unflatten(0, (len(queries), len(sets)))


@dataclass(frozen=True)
class SearchFitted(ClassFitted):
    """What a `KernelSearchClassifier` has learnt."""

    predictor: SearchPredictor
    settings: SearchSettings
    steps: tuple[SearchStep, ...]
    seed: int
    has_rule: bool = True  # whether the predictor's is that of the state
    inducing_for: int = 0  # rows that may come before inducing inputs are chosen anew

    @property
    def state(self) -> SmcState:
        """Of the particles."""
        return self.predictor.state

    @property
    def scaling(self) -> Scaling:
        """Of columns."""
        return self.predictor.scaling

    @property
    def waits(self) -> bool:
        """Whether there is nothing to tell apart: no rows, or rows of one class."""
        return self.predictor.waits

    @property
    def distinct_rows(self) -> LabelledRows:
        return self._merged[0]

    @cached_property
    def _merged(self) -> tuple[LabelledRows, np.ndarray]:
        """Rows that differ, and where among them each row is, (N,)."""
        return merged_rows(self.rows)

    @property
    def labels(self) -> np.ndarray:
        """Of the rows, (N,)."""
        return self.classes[self.rows.y]

    @property
    def settled(self) -> SearchFitted:
        """With the predictive rule, which takes longer to choose than a row to learn."""
        return self if self.has_rule else self._with_rule

    @cached_property
    def _with_rule(self) -> SearchFitted:
        """The rule that suits; the one that there is if `calibrate` has set the temperature."""
        with one_thread(), torch.inference_mode(False):  # weights are chosen by gradients
            if self.calibrated:
                return replace(self, predictor=self.predictor.on(self.state), has_rule=True)
            chosen = chosen_rule(self.state, self.settings.predictive)
        predictor = replace(self.predictor, chosen=chosen)
        return replace(self, predictor=predictor, temperature=chosen.temperature, has_rule=True)

    @property
    def rule(self) -> SearchRule:
        """How latents become probabilities."""
        return self.predictor.chosen.rule

    @property
    def log_evidence_error(self) -> float:
        """Standard error of the log evidence, in nats."""
        return 0.0 if self.waits else self.state.log_evidence_error

    @property
    def kernel_columns(self) -> list[str]:
        """Names of the columns as kernels number them, from 0: those that vary, as the encoder makes them."""
        names = self.reader.names_of(self.columns)
        return [f"column {place}" if names is None else names[place] for place in self.scaling.kept.tolist()]

    @property
    def kernel_posterior(self) -> list[tuple[float, str]]:
        """Mass and canonical structure, heaviest first."""
        return posterior_of(self.state)

    @property
    def particles(self) -> list[WeightedKernel]:
        """All particles, heaviest first."""
        state, weights, found = self.state, self.predictor.weights, []
        for i in self.predictor.order.tolist():
            structure, z = state.particles.structures[i], state.particles.z[i]
            kernel = state.prior.kernel(structure, z[1:])
            found.append(WeightedKernel(float(weights[i]), str(structure), kernel, float(state.prior.nugget(z[0]))))
        return found

    @property
    def ess_history(self) -> list[float]:
        """Effective sample sizes after each batch, before resampling."""
        return [size for step in self.steps for size in step.effective_sample_sizes]

    @property
    def learnt(self) -> LabelledRows:
        """A row and its copies are one."""
        return self.distinct_rows

    @cached_property
    def _left_out(self) -> tuple[Tensor, Tensor]:
        """Latents that are whitened, and rows of a single class, by folds that are taken away."""
        learnt, place = self._merged
        if not self.waits and not isinstance(self.state.latent, Whitened):
            p, scores = self.predictor.left_out(self.temperature)
            first = torch.from_numpy(np.unique(place, return_index=True)[1][self.places_left_out])
            return p[first], scores[first]
        number = pd.Series(place).groupby(place).cumcount().to_numpy()  # of a row among its copies

        def without_fold(stays: Tensor, weight: Tensor) -> SearchPredictor:
            n_stay = np.zeros(len(learnt.y))
            n_stay[stays] = weight
            return self.predictor.on(without(self.state, torch.from_numpy(number < n_stay[place])))

        with one_thread():
            p, scores = left_out_by_folds(learnt, without_fold, self.temperature)
        return p[self.places_left_out], scores[self.places_left_out]

    @property
    def entries_without(self) -> int:
        return len(self.state.particles) * (1 if self.state.n_classes == 2 else self.state.n_classes**2)

    def probabilities_without(self, queries: Tensor, place: Tensor, share: Tensor) -> Tensor:
        """Of a row that stands for several so many leave as make up the share."""
        if self.settings.representation != "collapsed" or self.settings.n_inducing is not None:
            raise NoInfluence("influence is known of searches with representation='collapsed' and without n_inducing.")
        if self.waits:
            raise NoInfluence("influence compares two classes, and all rows of this search are of one.")
        return self.predictor.probabilities_without(queries, self._sets(place, share), self.temperature)

    def _sets(self, place: Tensor, share: Tensor) -> list[Tensor]:
        """Numbers of the rows that leave together; those of one place are not the same while there are others."""
        copies: dict[int, list[int]] = {}
        for number, merged in enumerate(self._merged[1].tolist()):
            copies.setdefault(merged, []).append(number)
        begins, found = dict.fromkeys(copies, 0), []
        for merged, part in zip(place.tolist(), share.tolist(), strict=True):
            of_place = copies[merged]
            count, begin = max(1, round(part * len(of_place))), begins[merged]
            found.append(torch.tensor([of_place[(begin + k) % len(of_place)] for k in range(count)]))
            begins[merged] = begin + count
        return found

    def on(self, state: SmcState) -> SearchFitted:
        """With another state, and nothing that follows from it."""
        return replace(self, predictor=replace(self.predictor, state=state))

    def with_state(self, state: SmcState) -> SearchFitted:
        """With another state, everything that follows from its particles computed anew: as it is after loading.

        All but the predictive rule, which is chosen when somebody asks.
        """
        if len(state.contrasts) or state.inducing is not None:
            state = state.recomputed()
        return replace(self.on(state), log_evidence=state.log_evidence, has_rule=False)


def fitted_of(
    training: TrainingSet,
    scaling: Scaling,
    settings: SearchSettings,
    state: SmcState,
    steps: tuple[SearchStep, ...],
    seed: int,
) -> SearchFitted:
    """A state, and what it belongs to."""
    return SearchFitted(
        classes=training.classes,
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        temperature=1.0,
        calibrated=False,
        log_evidence=state.log_evidence,
        predictor=SearchPredictor(scaling, state),
        settings=settings,
        steps=steps,
        seed=seed,
    )


def posterior_of(state: SmcState) -> list[tuple[float, str]]:
    """Mass and canonical structure, heaviest first."""
    mass: dict[Structure, float] = {}
    for structure, weight in zip(state.particles.structures, state.log_weights.exp().tolist(), strict=True):
        form = canonical(structure)
        mass[form] = mass.get(form, 0.0) + weight
    total = sum(mass.values())
    return sorted(((value / total, str(form)) for form, value in mass.items()), key=lambda pair: (-pair[0], pair[1]))


def inputs_of(kept: np.ndarray, scaling: Scaling) -> Tensor:
    """What kernels see of rows."""
    x = kernel_inputs(kept, scaling, torch.device("cpu"))
    return aligned(within_range(x.numpy(), _FARTHEST))
