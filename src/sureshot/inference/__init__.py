"""From a likelihood and a prior to a posterior: mean field, Gibbs, Laplace, natural gradients, least squares.

`SCHEMES` are the objects that estimators and few-shot learners know (`schemes`); each of the other modules is an
algorithm, in pure steps on tensors.
"""

from __future__ import annotations

from sureshot.inference.schemes import Scheme
from sureshot.likelihoods import LIKELIHOODS
from sureshot.members import members

SCHEMES: dict[str, type[Scheme]] = members(Scheme, __name__)
"""Every scheme by its public name."""

INFERENCE_NAMES = tuple(name for name, scheme in SCHEMES.items() if not scheme.is_exact)
"""What may be asked for; an exact posterior needs no choice."""


def schemes_for(likelihood: str) -> tuple[str, ...]:
    """Names of the schemes of a likelihood, the default first; none for another name.

    They follow from what it gives. Where a posterior is exact it is the only one.
    """
    kind = LIKELIHOODS.get(likelihood)
    working = [] if kind is None else [scheme for scheme in SCHEMES.values() if scheme.takes(kind)]
    exact = [scheme for scheme in working if scheme.is_exact]
    return tuple(scheme.name for scheme in exact or sorted(working, key=lambda scheme: not scheme.has_sites))
