"""The decision between classes of the first session and later ones, beside the softmax and other ways to find it."""

import math

import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import logsigmoid

from sureshot.incremental.first_or_later import LATER_LOG_ODDS, LEAST_SLOPE, FirstOrLater

LATER = torch.tensor([False, True, False, False, True])


def decision(later: Tensor = LATER, slopes: tuple[float, float] = (1.4, 0.5)) -> FirstOrLater:
    sharpness = torch.where(later, 1.3, 0.8).double()
    return FirstOrLater(later, -0.3, *slopes, sharpness)


def scores(n: int = 40, seed: int = 0) -> Tensor:
    return 2 * torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_where_the_prior_lies_it_is_the_softmax_of_all_classes() -> None:
    plain = FirstOrLater(LATER, math.log(2 / 3), 1.0, 1.0, torch.ones(5).double())
    torch.testing.assert_close(plain.log_probabilities(scores()), torch.log_softmax(scores(), -1), rtol=0, atol=1e-12)


def test_classes_of_a_kind_share_its_probability() -> None:
    found = decision().log_probabilities(scores()).exp()
    torch.testing.assert_close(found.sum(-1), torch.ones(40).double(), rtol=0, atol=1e-12)
    first, beyond = (scores()[:, mask].exp().mean(-1).log() for mask in (~LATER, LATER))
    of_later = torch.sigmoid(-0.3 + 1.4 * beyond - 0.5 * first)
    torch.testing.assert_close(found[:, LATER].sum(-1), of_later)
    torch.testing.assert_close(found[:, LATER] / of_later[:, None], torch.softmax(1.3 * scores()[:, LATER], -1))


@pytest.mark.parametrize("missing", [[1, 4], [0, 2, 3], [3, 4], []])
def test_of_some_classes_it_is_what_is_said_where_the_others_are_out_of_question(missing: list[int]) -> None:
    whole = scores()
    whole[:, missing] = -torch.inf
    expected = decision().log_probabilities(whole)
    assert bool((expected[:, missing] == -torch.inf).all())
    torch.testing.assert_close(expected.logsumexp(-1), torch.zeros(40).double(), rtol=0, atol=1e-12)
    order = torch.tensor([4, 0, 3, 1, 2])
    some = decision().log_probabilities(whole[:, order], order.expand(40, -1))
    torch.testing.assert_close(some, expected[:, order])


def drawn(n: int) -> tuple[Tensor, Tensor]:
    """Scores, and classes that are what `decision` says."""
    said = scores(n, 1)
    return said, decision().log_probabilities(said).exp().multinomial(1, generator=torch.Generator().manual_seed(2))[
        :, 0
    ]


def test_it_is_learnt_from_rows_that_follow_it() -> None:
    found = FirstOrLater.learnt(*drawn(20_000), LATER)
    assert found is not None
    # Rows were drawn with the frequencies that they have, and are weighed as if classes were equally frequent.
    rate = LATER[drawn(20_000)[1]].double().mean()
    shift = math.log(2 / 3) - math.log(float(rate / (1 - rate)))
    assert found.intercept == pytest.approx(-0.3 + shift + LATER_LOG_ODDS, abs=0.08)
    assert (found.slope_later, found.slope_first) == pytest.approx((1.4, 0.5), abs=0.08)
    torch.testing.assert_close(found.sharpness, decision().sharpness, rtol=0.04, atol=0)


def test_coefficients_are_the_most_probable() -> None:
    said, y = drawn(80)
    found, of_later = FirstOrLater.learnt(said, y, LATER), LATER[y]
    assert found is not None
    first, beyond = (said[:, mask].exp().mean(-1).log() for mask in (~LATER, LATER))
    weight = torch.where(of_later, 2 / of_later.double().sum(), 3 / (~of_later).double().sum())
    weight = 80 * weight / weight.sum()

    def loss(at: Tensor) -> Tensor:
        odds = at[0] + at[1] * beyond - at[2] * first
        away = (at[0] - math.log(2 / 3)) ** 2 + (at[1] - 1) ** 2 + (at[2] - 1) ** 2
        return away / 2 - weight @ logsigmoid(torch.where(of_later, odds, -odds))

    most_probable = [found.intercept - LATER_LOG_ODDS, found.slope_later, found.slope_first]
    by_search = minimize(
        lambda at: float(loss(torch.from_numpy(at))),
        [0.0, 0.5, 0.5],
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-10},
    ).x
    assert most_probable == pytest.approx(by_search.tolist(), abs=1e-5)
    # A search that ended by its values leaves a slope of 3e-8.
    slope = torch.func.grad(loss)(torch.tensor(most_probable, dtype=torch.float64))
    assert float(slope.abs().max()) < 1e-11


def test_no_density_speaks_against_its_own_kind() -> None:
    said, y = drawn(400)
    turned = -said
    found = FirstOrLater.learnt(turned, y, LATER)
    assert found is not None
    assert found.slope_later == found.slope_first == LEAST_SLOPE


@pytest.mark.parametrize("classes", [[0, 2, 3], [1, 4], []])
def test_rows_of_one_kind_decide_nothing(classes: list[int]) -> None:
    y = torch.tensor(classes, dtype=torch.int64)
    assert FirstOrLater.learnt(scores(len(classes)), y, LATER) is None
