"""What `KernelSearchClassifier` has learnt: weighted particles, and the rows that they are conditioned on.

Rows are kept in the order in which they were taken in, a row of weight w as w rows. With the structures, parameters and
Polya-Gamma variables of the particles they make everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.computing.threads import one_thread
from sureshot.estimators.classes.class_fitted import ClassFitted, ClassPredictor, NoInfluence, left_out_by_folds
from sureshot.estimators.classes.uncertainty import average_and_entropy, entropy
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.search.results import Searched, SearchStep, inputs_of, order_of
from sureshot.estimators.search.rule import INTEGRAL, Chosen, SearchRule, chosen_rule
from sureshot.estimators.search.settings import SearchSettings
from sureshot.likelihoods import Logistic, OneVsEach
from sureshot.structure.leave_one_out import left_out, of_classes
from sureshot.structure.one_class import one_class_probabilities
from sureshot.structure.prediction import averaged_probabilities, moments, unexplained_variance
from sureshot.structure.removal import without
from sureshot.structure.smc import SmcState
from sureshot.structure.whitened import Whitened
from sureshot.structure.without_rows import moments_without


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

    def particle_probabilities(self, queries: Tensor, temperature: float) -> Tensor:
        """Class probabilities under each particle (Q, M, C), the heaviest first."""
        if self.waits:
            return self.moments(queries)[0].unsqueeze(1).expand(-1, len(self.weights), -1)
        alone, rule, order = queries.new_ones(1), self.chosen.of_latents, order_of(self.state)
        return torch.stack(
            [
                averaged_probabilities(mean.unsqueeze(0), covariance.unsqueeze(0), alone, temperature, rule)
                for mean, covariance in zip(*(part[order] for part in self.moments(queries)[:2]), strict=True)
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
class SearchFitted(Searched, ClassFitted):
    """What a `KernelSearchClassifier` has learnt."""

    predictor: SearchPredictor
    settings: SearchSettings
    steps: tuple[SearchStep, ...]
    seed: int
    has_rule: bool = True  # whether the predictor's is that of the state
    inducing_for: int = 0  # rows that may come before inducing inputs are chosen anew

    @property
    def waits(self) -> bool:
        """Whether there is nothing to tell apart: no rows, or rows of one class."""
        return self.predictor.waits

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
