"""A member that sees all its rows at once: a plan, features, and a posterior of their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sureshot.approximations.explicit import Explicit
from sureshot.approximations.inducing import unexplained
from sureshot.computing.layout import aligned
from sureshot.estimators.classes.temperature import with_noise
from sureshot.estimators.classes.uncertainty import average_and_entropy
from sureshot.estimators.gp.leaving import Leaving, OfSample, leaving
from sureshot.estimators.gp.member import Member, doubts
from sureshot.estimators.gp.posterior_arrays import pack_posterior
from sureshot.estimators.gp.process import GaussianProcess
from sureshot.estimators.gp.weight_space import WeightSpace
from sureshot.estimators.rows.folds import by_folds
from sureshot.estimators.rows.labelled_rows import LabelledRows, sample_of
from sureshot.estimators.rows.support import Support
from sureshot.gaussian.posterior import LatentMoments, Posterior, leave_one_out
from sureshot.gaussian.prior import Queries
from sureshot.inference.schemes import Conditioned, Request
from sureshot.kernels import Expression


@dataclass(frozen=True)
class GlobalMember(Member):
    """A plan, and the Gaussian process that it has made of the labelled rows."""

    process: GaussianProcess
    log_evidence: float  # in nats
    trace: tuple[float, ...]  # of the bound, along the iterations of mean field or natural gradients

    @property
    def kernel(self) -> Expression:
        return self.process.kernel

    def moments(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        return self._moments(self.process.values(queries))

    def _moments(self, values: Queries) -> tuple[Tensor, Tensor]:
        if self.plan.rule == "plug_in":
            mean = self.process.means(values)
            return mean, torch.zeros_like(mean)
        return self.process.moments(values)

    def probabilities(self, mean: Tensor, spread: Tensor, temperature: float, n_classes: int) -> Tensor:
        likelihood = self.plan.model.predictive_likelihood
        p = likelihood.predict_mixture(mean / temperature, spread / temperature**2, self.plan.rule).mT
        p = p[:, :n_classes]
        return p / p.sum(1, keepdim=True)

    def latents(self, queries: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
        """Of the mixture of chains."""
        return self._latents(self.process.values(queries), n_classes)

    def _latents(self, values: Queries, n_classes: int) -> tuple[Tensor, Tensor]:
        mean, variance = self._of_classes(*self.process.marginals(values), n_classes)
        return mean.mT, variance.mT

    def _of_classes(self, mean: Tensor, variance: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
        """Moments of the latents (L, Q) as those of a latent for each class (C, Q)."""
        if not self.plan.model.one_latent:
            return mean, variance
        return torch.cat([-mean / 2, mean / 2])[:n_classes], (variance / 4).expand(2, -1)[:n_classes]

    def outlier_scores(self, queries: Tensor, n_classes: int) -> Tensor:
        """A prior mean common to all latents says nothing where only their differences matter: it is taken off."""
        return self._outlier_scores(self.process.values(queries), n_classes)

    def _outlier_scores(self, values: Queries, n_classes: int) -> Tensor:
        process = self.process
        if self.plan.model.one_latent or self.plan.model.scheme.samples:
            return self._doubt(*(part.mT for part in self._latents(values, n_classes)))
        # The variance of one class each is much cheaper than that of all.
        top, classes = process.means(values)[0].max(0)
        return self._deviations(top, process.posterior.query_variance(*process.queries(values), classes)[0])

    def _doubt(self, mean: Tensor, variance: Tensor) -> Tensor:
        """The same from moments of all classes (C, Q)."""
        top, classes = mean.max(0)
        return self._deviations(top, variance.gather(0, classes[None]).squeeze(0))

    def _deviations(self, top: Tensor, variance: Tensor) -> Tensor:
        common = self.plan.model.prior_mean if self.plan.model.training_likelihood.translation_invariant else 0.0
        return doubts(top - common, variance)

    def _with_posterior(self, posterior: Posterior) -> GlobalMember:
        """Where the values of rows are features already."""
        _, weights, arrays = pack_posterior(posterior)
        process = replace(
            self.process,
            approximation=Explicit(self.process.kernel),
            coefficients=weights,
            prior_mean=arrays["prior_mean"],
            space=WeightSpace(posterior),
        )
        return replace(self, process=process)

    def left_out(self, rows: LabelledRows, place: Tensor, n_classes: int, temperature: float) -> tuple[Tensor, Tensor]:
        """Rows that it has not seen are left out as they are."""
        seen = torch.from_numpy(rows.lots < self.plan.share)
        of_seen = self._left_out(sample_of(rows, self.plan.share), n_classes, temperature)
        p, scores = (part[(seen.cumsum(0) - 1)[place]] for part in of_seen)
        new = ~seen[place]
        if bool(new.any()):
            queries = torch.from_numpy(rows.x[place[new].numpy()])
            p[new] = self.probabilities(*self.moments(queries), temperature, n_classes)
            scores[new] = self.outlier_scores(queries, n_classes)
        return p, scores

    def _left_out(self, rows: LabelledRows, n_classes: int, temperature: float) -> tuple[Tensor, Tensor]:
        """In closed form by the sites of Laplace's method and of least squares, for which it is exact but for the prior
        mean: the frequency of each class, the row's own label among them. Mean field over several classes makes sites
        of means that have seen the label; these and samplers are asked by folds.
        """
        device = self.plan.device
        support, model = Support.of(rows, n_classes, self.plan.scaling, device), self.plan.model
        process, left = self.process, support.left_out
        with torch.no_grad():
            features, variance = process.approximation.queries(support.x)
        prior = Queries(features.unsqueeze(0), variance.unsqueeze(0))

        def conditioned(at: Tensor, weight: Tensor) -> Conditioned:
            generator = torch.Generator(device=device).manual_seed(0)
            return model.condition(features[at], support.y[at], n_classes, weight, Request(generator=generator))

        def of_fold(stays: Tensor, weight: Tensor, fold: Tensor) -> Tensor:
            without = self._with_posterior(conditioned(stays, weight).posterior)
            queries = Queries(*(part[:, fold] for part in prior))
            p = without.probabilities(*without._moments(queries), temperature, n_classes)
            return torch.cat([p, without._outlier_scores(queries, n_classes).unsqueeze(-1)], -1)

        if model.sites_see_labels or not model.scheme.has_sites:
            both = by_folds(support.y, support.weight, left, of_fold)
            return both[:, :-1], both[:, -1]
        found = conditioned(torch.arange(len(support.y), device=device), support.weight)
        assert found.moments is not None
        assert found.sites is not None
        mean, variance = leave_one_out(*found.moments, *(left * part for part in found.sites))
        variance = variance + unexplained(prior.variance[0], features)
        p = self.probabilities(mean[None], variance[None], temperature, n_classes)
        return p, self._doubt(*self._of_classes(mean, variance, n_classes))

    def average_and_entropy(
        self, queries: Tensor, temperature: float, n_classes: int, noise: float
    ) -> tuple[Tensor, Tensor]:
        likelihood = self.plan.model.predictive_likelihood

        def probabilities(latents: Tensor) -> Tensor:
            return with_noise(likelihood.plug_in(latents / temperature)[:, :n_classes], noise)

        return average_and_entropy(*self.process.moments(self.process.values(queries)), probabilities)

    def leaving(self, rows: LabelledRows, n_classes: int) -> Leaving:
        seen = sample_of(rows, self.plan.share)
        y, weight = (aligned(part, self.plan.device) for part in (seen.y, seen.weight))
        found = leaving(self.process.posterior, self.plan.model, y, weight, n_classes)
        return found if seen is rows else OfSample(found, aligned(rows.lots < self.plan.share, self.plan.device))

    def probabilities_without(
        self, queries: Tensor, without: Leaving | None, place: Tensor, share: Tensor, temperature: float, n_classes: int
    ) -> Tensor:
        assert without is not None
        values, device = self.process.values(queries), self.plan.device
        place, share = place.to(device), share.to(device)
        given = LatentMoments(*self._moments(values))
        mean, spread = without.moments(given, self.process.queries(values), place, share)
        mean = mean.flatten(-2)
        if self.plan.rule == "plug_in":
            spread = torch.zeros_like(mean)
        spread = spread.flatten(1, 2) if spread.dim() == 5 else spread.reshape(mean.shape)
        return self.probabilities(mean, spread, temperature, n_classes).unflatten(
            0, (values.cross.shape[1], len(place))
        )
