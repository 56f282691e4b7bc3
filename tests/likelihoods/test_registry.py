"""Likelihoods by name."""

from __future__ import annotations

import pytest

from sureshot.likelihoods import LIKELIHOODS, LogisticSoftmax, get_likelihood


@pytest.mark.parametrize("name", ["logistic", "one_vs_each", "logistic_softmax", "least_squares", "softmax"])
def test_every_public_name(name: str) -> None:
    likelihood = get_likelihood(name)
    assert isinstance(likelihood, LIKELIHOODS[name])
    assert likelihood.name == name


def test_options_are_passed() -> None:
    likelihood = get_likelihood("logistic_softmax", temperature=0.2, augmentation="poisson_gamma")
    assert isinstance(likelihood, LogisticSoftmax)
    assert (likelihood.temperature, likelihood.augmentation) == (0.2, "poisson_gamma")


def test_errors_name_the_choices() -> None:
    with pytest.raises(ValueError, match="'one_vs_each'"):
        get_likelihood("probit")
    with pytest.raises(ValueError, match="does not take these options"):
        get_likelihood("logistic", temperature=2)
