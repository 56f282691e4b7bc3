"""What turns a contrast's latent into the probability that it is positive.

The logistic function has Polya-Gamma variables, so every representation takes it; the probit's integral over a Gaussian
is closed, ``E[Phi(f)] = Phi(m / sqrt(1 + v))``, and only the whitened representation, which needs a density alone, has
it. Its classes are two: for more, what a prediction is by one-vs-each is the logistic one's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.special import log_ndtr

from sureshot.likelihoods.quadrature import log_expected_sigmoid


@dataclass(frozen=True)
class Link:
    """The logarithm of the probability, at a latent and expected of a Gaussian one."""

    name: str
    log_probability: Callable[[Tensor], Tensor]
    log_expected: Callable[[Tensor, Tensor], Tensor]
    """Of means and variances."""


def _log_expected_probit(mean: Tensor, variance: Tensor) -> Tensor:
    return log_ndtr(mean / (1 + variance).sqrt())


LOGISTIC = Link("logistic", logsigmoid, log_expected_sigmoid)
PROBIT = Link("probit", log_ndtr, _log_expected_probit)
LINKS = {link.name: link for link in (LOGISTIC, PROBIT)}
"""By name."""
