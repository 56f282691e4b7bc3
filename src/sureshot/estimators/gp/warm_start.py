"""Where to look for the mode for more rows or classes, or fewer: the latent functions of the mode that is known.

They are written down in the basis of the rows that are there: explicit features mean the same whatever the rows, and
kernel values against an inducing input are the same function as long as it is one. Rows and classes that come have no
coefficients yet, which is their prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.explicit import Explicit
from sureshot.approximations.inducing import Inducing
from sureshot.estimators.gp.global_member import GlobalMember

_LEAST_SHARED = 0.5  # share of the inducing inputs that are known; with fewer the functions would be others


@dataclass(frozen=True)
class Start:
    """A member as it is known of other rows."""

    member: GlobalMember
    known_classes: np.ndarray  # (K,), of its coefficients
    classes: np.ndarray  # (C,), of the rows that are there now

    def weights(self, approximation: Finite) -> Tensor | None:
        """Weights (C, R) of its latents by other features; None where they are not those of a mode."""
        model, coefficients = self.member.plan.model, self.member.process.coefficients[0]
        same_classes = np.array_equal(self.known_classes, self.classes)
        of_each_class = not model.one_latent and len(coefficients) == len(self.known_classes)
        if not model.scheme.seeks_mode or not (of_each_class or same_classes):
            return None
        values = coefficients if same_classes else _of_classes(coefficients, self.known_classes, self.classes)
        old = self.member.process.approximation
        if isinstance(old, Explicit) and isinstance(approximation, Explicit):
            full = values if old.basis is None else values @ old.basis.mT
            return full if approximation.basis is None else full @ approximation.basis
        if not (isinstance(old, Inducing) and isinstance(approximation, Inducing)):
            return None
        places = {row.tobytes(): place for place, row in enumerate(old.inputs.cpu().numpy())}
        found = [places.get(row.tobytes(), -1) for row in approximation.inputs.cpu().numpy()]
        place = torch.tensor(found, device=values.device)
        if float((place >= 0).sum()) < _LEAST_SHARED * len(place):
            return None
        return approximation.weights(values[:, place.clamp_min(0)] * (place >= 0))


def _of_classes(values: Tensor, known_classes: np.ndarray, classes: np.ndarray) -> Tensor:
    """Values (C, R) of the classes, from those of the known ones; zero for the others."""
    places = {label: place for place, label in enumerate(known_classes.tolist())}
    found = values.new_zeros(len(classes), values.shape[1])
    for place, label in enumerate(classes.tolist()):
        if label in places:
            found[place] = values[places[label]]
    return found
