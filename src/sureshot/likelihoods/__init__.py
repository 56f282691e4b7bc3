"""Likelihoods: what gives sites, labels or real targets observed (`sites`), and what predicts classes (`base`).

============================  ================================================================
`Logistic`                    two classes, one latent function
`OneVsEach`                   many classes; the label beats every other class, a composite likelihood
`LogisticSoftmax`             many classes, normalised, with a temperature
`GaussianLabels`              regression on -1/+1 targets, exact posterior
`GaussianNoise`               regression on real targets; gives sites only
`Softmax`                     the reference without Gaussian sites
============================  ================================================================

To add one: implement `Likelihood`, and with it `MeanFieldLikelihood` or `ConjugateLikelihood` (as `ClassSites`) when it
has Gaussian sites, state its `name`, and add a case to ``tests/contracts/test_likelihoods.py``. Read `logistic` first.
"""

from __future__ import annotations

from typing import Any

from sureshot.likelihoods.base import Likelihood, PredictiveRule
from sureshot.likelihoods.gaussian import GaussianLabels, GaussianNoise
from sureshot.likelihoods.logistic import Logistic
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax
from sureshot.likelihoods.one_vs_each import OneVsEach
from sureshot.likelihoods.sites import ConjugateLikelihood, MeanFieldLikelihood
from sureshot.likelihoods.softmax import Softmax
from sureshot.members import members

__all__ = [
    "LIKELIHOODS",
    "ConjugateLikelihood",
    "GaussianLabels",
    "GaussianNoise",
    "Likelihood",
    "Logistic",
    "LogisticSoftmax",
    "MeanFieldLikelihood",
    "OneVsEach",
    "PredictiveRule",
    "Softmax",
    "get_likelihood",
]

LIKELIHOODS: dict[str, type[Likelihood]] = members(Likelihood, __name__)
"""Every likelihood of labels by its public name."""


def get_likelihood(name: str, **options: Any) -> Likelihood:
    """Make a likelihood from its public name, one of `LIKELIHOODS`, and arguments of its class.

    >>> get_likelihood("logistic_softmax", temperature=0.5).temperature
    0.5
    """
    if name not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {', '.join(map(repr, LIKELIHOODS))}, but it is {name!r}")
    try:
        return LIKELIHOODS[name](**options)
    except TypeError as error:
        raise ValueError(f"likelihood {name!r} does not take these options: {error}") from None
