"""What `KernelSearchRegressor` has learnt: weighted particles, and the rows with numbers that they know."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.computing.threads import one_thread
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.numbers.number_fitted import NumberFitted, NumberPredictor, Pulling
from sureshot.estimators.numbers.prediction import Prediction
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.search.results import Searched, SearchStep, WeightedKernel, inputs_of
from sureshot.estimators.search.settings import SearchSettings
from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.copies import Copies
from sureshot.structure.number_rows import left_out, pulls
from sureshot.structure.numbers import Numbers
from sureshot.structure.parts import AdditiveForm, decomposed
from sureshot.structure.prediction import moments
from sureshot.structure.smc import SmcState

_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class NumberParticles(NumberPredictor):
    """Particles, whose targets are standardised numbers."""

    scaling: Scaling
    state: SmcState

    @property
    def weight(self) -> np.ndarray:
        return self.state.log_weights.exp().numpy()

    @property
    def queries_at_once(self) -> int:
        return max(1, AT_ONCE // max(1, 3 * len(self.state.particles) * len(self.state.x)))

    def inputs(self, kept: np.ndarray) -> Tensor:
        return inputs_of(kept, self.scaling)

    def moments(self, queries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean, covariance = moments(self.state, queries)
        total = covariance[..., 0, 0].mT  # (Q, M)
        latent = (total - self.nuggets).clamp_min(_LEAST_VARIANCE)
        return mean.permute(2, 0, 1), total.maximum(latent), latent, total.new_ones(len(queries), 1)

    @property
    def nuggets(self) -> Tensor:
        """Variances of the particles' noise (M,)."""
        return self.state.particles.nuggets(self.state.prior)


@dataclass(frozen=True)
class SearchNumbersFitted(Searched, NumberFitted):
    """What a `KernelSearchRegressor` has learnt."""

    predictor: NumberParticles
    settings: SearchSettings = field(kw_only=True)
    steps: tuple[SearchStep, ...] = field(kw_only=True)
    seed: int = field(kw_only=True)

    @property
    def summary(self) -> list[WeightedKernel]:
        """The particles."""
        return self.particles

    @property
    def log_evidence_error(self) -> float:
        """Standard error of the log evidence, in nats."""
        return self.state.log_evidence_error

    def with_state(self, state: SmcState) -> SearchNumbersFitted:
        """With another state, everything that follows from its particles computed anew: as it is after loading."""
        state = state.recomputed()
        return replace(self, predictor=replace(self.predictor, state=state), log_evidence=state.log_evidence)

    def decompose(self, kept: np.ndarray) -> list[AdditiveForm]:
        """Of rows as the reader keeps them."""
        unit, centre = float(self.target.unit[0]), float(self.target.centre[0])
        with torch.no_grad(), one_thread():
            return decomposed(self.state, self.predictor.inputs(kept), unit, centre)

    def pulling(self) -> Pulling:
        def without(queries: Tensor, place: Tensor, share: Tensor) -> Tensor:
            sets = self._sets(place, share)
            sizes = torch.tensor([len(one) for one in sets])
            each = [(sizes == size).nonzero().flatten() for size in sizes.unique()]
            grouped = [(those, torch.stack([sets[k] for k in those.tolist()])) for those in each]
            return pulls(self.state, queries, grouped, len(sets)).unsqueeze(-1)

        return without

    def covariance_within(self, queries: Tensor) -> np.ndarray:
        state, within = self.state, np.zeros((len(queries), len(queries)))
        for k, one in enumerate(self.predictor.weight.tolist()):  # large: one at a time
            particle = state.particles.chosen([k])
            cross = particle.grams(state.prior, SharedRows(state.x, queries))
            own = particle.grams(state.prior, SharedRows(queries))[0]
            _, taken = self._numbers.chosen(slice(k, k + 1)).predicted(cross)
            within += one * (own - taken[0].mT @ taken[0]).numpy()
        return within

    @property
    def _numbers(self) -> Numbers:
        assert isinstance(self.state.latent, Numbers)
        return self.state.latent

    @cached_property
    def left_out(self) -> tuple[np.ndarray, Prediction]:
        """Each row without it and its copies, the particles weighed as without these."""
        rows, place = self._merged
        first = torch.from_numpy(np.unique(place, return_index=True)[1])
        copies = Copies(first, torch.from_numpy(place), torch.ones(len(first), dtype=torch.bool))
        with one_thread():
            found = left_out(self.state, list(copies.sets()), len(first))
        latent = (found.variance - self.predictor.nuggets.unsqueeze(-1)).clamp_min(_LEAST_VARIANCE)
        moments = (found.mean.mT.unsqueeze(-1), found.variance.mT, latent.mT, latent.new_ones(len(first), 1))
        told = self.prediction(*(part.numpy() for part in moments))
        return rows.y, replace(told, scaled=replace(told.scaled, weight=found.weights.numpy()))

    @cached_property
    def score(self) -> float:
        """The mean log density of left-out rows, in nats, in units of the numbers."""
        y, found = self.left_out
        return float(found.log_density(y).mean())


def numbers_fitted_of(
    training: TrainingSet, predictor: NumberParticles, target: TargetScale, settings: SearchSettings, seed: int
) -> SearchNumbersFitted:
    """A state, and what it belongs to, before any step."""
    return SearchNumbersFitted(
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        log_evidence=predictor.state.log_evidence,
        predictor=predictor,
        target=target,
        one_target=training.one_target,
        settings=settings,
        steps=(),
        seed=seed,
    )
