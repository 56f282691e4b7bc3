"""A member that sees of each query its nearest labelled rows only: a local regression on labels, and a link."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.estimators.classes.temperature import with_noise
from sureshot.estimators.classes.uncertainty import average_and_entropy
from sureshot.estimators.gp.leaving import Leaving
from sureshot.estimators.gp.local_process import LocalProcess
from sureshot.estimators.gp.member import Member, doubts
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.tuning.objective import label_link
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.kernels import Expression
from sureshot.likelihoods.local_link import LabelLink


@dataclass(frozen=True)
class LocalMember(Member):
    """The regressions' targets are labels less the frequencies of the classes."""

    process: LocalProcess

    @classmethod
    def of(cls, plan: Plan, rows: LabelledRows, n_classes: int) -> LocalMember:
        """Of labelled rows with the weights that they are learnt with."""
        return cls(plan, LocalProcess.of(plan, rows, _link(rows, n_classes)))

    def with_rows(self, rows: LabelledRows, places: np.ndarray | None, n_classes: int) -> LocalMember:
        """Of these rows, see `LocalProcess.with_rows`."""
        return LocalMember(self.plan, self.process.with_rows(rows, places, _link(rows, n_classes)))

    @property
    def link(self) -> LabelLink:
        """From regressions to probabilities."""
        assert isinstance(self.process.link, LabelLink)
        return self.process.link

    @property
    def kernel(self) -> Expression:
        return self.plan.kernel

    def moments(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        logits = self._logits(*self.process.moments(queries)).mT.unsqueeze(0)
        return logits, torch.zeros_like(logits)

    def probabilities(self, mean: Tensor, spread: Tensor, temperature: float, n_classes: int) -> Tensor:
        return torch.softmax(mean[0].mT / temperature, 1)

    def latents(self, queries: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
        mean, variance = self._latents(*self.process.moments(queries))
        return mean, variance.unsqueeze(-1).expand_as(mean)

    def outlier_scores(self, queries: Tensor, n_classes: int) -> Tensor:
        mean, variance = self.process.moments(queries)
        return doubts(mean.amax(1), variance)

    def average_and_entropy(
        self, queries: Tensor, temperature: float, n_classes: int, noise: float
    ) -> tuple[Tensor, Tensor]:
        mean, variance = self._latents(*self.process.moments(queries))

        def probabilities(latents: Tensor) -> Tensor:
            return with_noise(torch.softmax(latents / temperature, -2), noise)

        return average_and_entropy(mean.mT[None], variance.expand_as(mean.mT)[None], probabilities)

    def left_out(self, rows: LabelledRows, place: Tensor, n_classes: int, temperature: float) -> tuple[Tensor, Tensor]:
        mean, variance = self.process.moments_without_themselves(rows, place)
        return torch.softmax(self._logits(mean, variance) / temperature, 1), doubts(mean.amax(1), variance)

    def probabilities_left_out(self, rows: LabelledRows, place: Tensor) -> Tensor:
        """Class probabilities (M, C) of labelled rows at places (M,), each without itself."""
        return torch.softmax(self._logits(*self.process.moments_without_themselves(rows, place)), 1)

    def leaving(self, rows: LabelledRows, n_classes: int) -> Leaving | None:
        return None

    def probabilities_without(
        self, queries: Tensor, without: Leaving | None, place: Tensor, share: Tensor, temperature: float, n_classes: int
    ) -> Tensor:
        found = []
        for given, query, entry, changed in self.process.without(queries, place, share):
            every = self._logits(*given).unsqueeze(1).repeat(1, len(place), 1)
            every[query, entry] = self._logits(*changed)
            found.append(torch.softmax(every / temperature, -1))
        return torch.cat(found).to(self.plan.device)

    def _logits(self, mean: Tensor, variance: Tensor) -> Tensor:
        assert self.plan.local is not None
        return self.link.logits(self.plan.local.gain, self.plan.local.doubt, mean, variance)

    def _latents(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        assert self.plan.local is not None
        return self.link.latents(self.plan.local.gain, self.plan.local.doubt, mean, variance)


def _link(rows: LabelledRows, n_classes: int) -> LabelLink:
    return label_link(aligned(rows.y), aligned(rows.weight), n_classes)
