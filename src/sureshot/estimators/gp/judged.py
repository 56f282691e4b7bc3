"""Members of a fit and how well they predict rows that were left out, which weigh them and temper their average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.classes.class_prior import under_prior
from sureshot.estimators.classes.temperature import fit_average, log_probability, tempered_average
from sureshot.estimators.gp.ensemble import averaged
from sureshot.estimators.gp.fitted import LeftOutScores
from sureshot.estimators.gp.local_member import LocalMember
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.tuning.stacking import stacking_weights
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.support import Support, sampled_rows

MOST_JUDGES = 4000
"""Left-out rows, evenly chosen or the latest, that weigh members of which some see nearest rows only."""

LEAST_WEIGHT = 0.03
"""Of a member beside local ones: less says too little for the time that it takes of every prediction."""


@dataclass(frozen=True)
class Judged:
    """What predicts, and who judges it."""

    members: tuple[Member, ...]
    left_out: tuple[Tensor | None, ...]  # their probabilities (C, N) of left-out rows, where they know them
    support: Support  # these rows
    to_be_weighed: bool  # by these rows

    def joined_by(self, local: Sequence[LocalMember], rows: LabelledRows, ask: bool = True) -> Judged:
        """With members that see nearest rows, and no more judges than their predictions take time for, if any."""
        past = local[0].process.past(rows)
        place, asked = sampled_rows(self.support, MOST_JUDGES, None if past is None else past.order)
        of_rows = [None if part is None else part[:, place] for part in self.left_out]
        seen = np.flatnonzero(rows.lots < self.members[0].plan.share) if self.members else np.arange(len(rows.y))
        places = torch.from_numpy(seen)[place.cpu()]
        ask = ask and len(places) > 0
        of_rows += [member.probabilities_left_out(rows, places).mT if ask else None for member in local]
        members = (*self.members, *local)
        order = sorted(range(len(members)), key=lambda k: -members[k].plan.weight)
        return Judged(tuple(members[k] for k in order), tuple(of_rows[k] for k in order), asked, True)

    @property
    def _known(self) -> list[Tensor]:
        """Probabilities of left-out rows of all members, or of none."""
        known = [part for part in self.left_out if part is not None]
        return known if len(known) == len(self.members) else []

    def weighed(self) -> Judged:
        """Those that the rows choose, with the weights that these give them, the heaviest first.

        Their scales were chosen by a part of the rows, so their predictions are not too good.
        """
        if not self.to_be_weighed or len(self.members) == 1 or not self._known:
            return self
        own = self.support.y[None]
        scores = torch.stack([log_probability(part.gather(0, own)[0]) for part in self._known])
        weights = stacking_weights(scores, self.support.usable, len(self.members))
        least = LEAST_WEIGHT if any(isinstance(member, LocalMember) for member in self.members) else 0.0
        kept = [k for k in weights.argsort(descending=True, stable=True).tolist() if weights[k] > least]
        weights /= weights[kept].sum()
        members = tuple(self.members[k].weighing(float(weights[k])) for k in kept)
        return replace(self, members=members, left_out=tuple(self.left_out[k] for k in kept))

    def of_average(self, before: tuple[float, float]) -> tuple[float, float, float]:
        """Temperature, label noise and score of the average; the first two as `before` where members do not know."""
        if not self._known:
            return *before, sum(member.plan.weight * member.plan.score for member in self.members)
        temperature, noise, pointwise = fit_average(averaged(self.members, self._known), self.support)
        usable = self.support.usable
        return temperature, noise, float(usable @ pointwise / usable.sum())

    def scores(
        self,
        temperature: float,
        noise: float,
        of_classes: tuple[np.ndarray, np.ndarray | None],  # frequencies and prior, each (C,)
    ) -> LeftOutScores | None:
        """Of rows by the posterior of all others, where every member has them."""
        known, support = self._known, self.support
        total = float(support.usable.sum())
        if not known or not total > 0:
            return None
        p = known[0]
        if len(known) > 1:
            p = tempered_average(averaged(self.members, known), temperature, noise)
        p, share = p / p.sum(0), support.usable / total
        frequencies, prior = of_classes
        p = p if prior is None else under_prior(p.mT, frequencies, prior).mT
        right = (p.argmax(0) == support.y).to(share)
        of_class = [torch.bincount(support.y, part, minlength=support.n_classes) for part in (share * right, share)]
        recall = (of_class[0] / of_class[1])[of_class[1] > 0]
        of_label = log_probability(p.gather(0, support.y[None])[0])
        nll = -float(share @ of_label)
        spread = float(share @ (of_label + nll).square()) ** 0.5
        return LeftOutScores(float(share @ right), float(recall.mean()), nll, spread)
