"""Least squares where features are fewer than rows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sureshot import GPClassifier
from sureshot.approximations.inducing import Inducing
from sureshot.estimators.classes.temperature import plug_in_temperatures
from sureshot.estimators.gp.judged import Judged
from sureshot.estimators.gp.member_fitting import MemberFit
from sureshot.estimators.gp.noise import LEVELS, with_noise_of_features
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.weight_space import LazyWeightSpace
from sureshot.estimators.rows.support import Support
from sureshot.inference.schemes import Effort, Request

N, FEATURES = 300, 40


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes in a chequered plane, which takes a kernel that bends a lot."""
    X = np.random.default_rng(seed).uniform(-2, 2, size=(N, 2))
    return X, (np.floor(X).sum(1) % 2).astype(int)


def plan_of(model: GPClassifier) -> Plan:
    plan: Plan = model._fitted.heaviest.plan
    return replace(plan, model=replace(plan.model, noise=1e-4))


@pytest.fixture
def problem() -> tuple[Plan, Support, Inducing]:
    X, y = rows()
    model = GPClassifier("matern12", "least_squares", approximation="inducing", n_inducing=FEATURES).fit(X, y)
    ones = torch.ones(N, dtype=torch.float64)
    plan = plan_of(model)
    x = torch.from_numpy(plan.scaling(X))
    return (
        plan,
        Support(x, torch.from_numpy(y), ones, 2, ones, ones),
        Inducing(plan.kernel, x[:FEATURES], orthogonal=True),
    )


def test_the_best_level_is_found(problem: tuple[Plan, Support, Inducing]) -> None:
    plan, support, features = problem
    phi = features.features(support.x)

    def score(noise: float) -> float:
        model = replace(plan.model, noise=noise)
        found = model.condition(phi, support.y, 2, support.weight, Request(Effort.MEANS))
        moments = found.leave_one_out(support.left_out)
        _, (pointwise,) = plug_in_temperatures(model.predictive_likelihood, moments[0][None], support, plan.temperature)
        return float(support.usable @ pointwise)

    scores = [score(plan.model.noise * level) for level in LEVELS]
    found, scale, _ = with_noise_of_features(plan, support, phi)
    best = int(np.argmax(scores))
    assert best > 0
    assert scores[best] > scores[0] + 10
    assert found.model.noise == pytest.approx(plan.model.noise * LEVELS[best] * scale)
    again = with_noise_of_features(found, support, phi * scale**0.5)
    assert again == (found, 1.0, None)  # what is enough is left alone


def test_levels_of_as_many_features_as_rows_are_tried_upwards(problem: tuple[Plan, Support, Inducing]) -> None:
    plan, support, _ = problem
    phi = Inducing(plan.kernel, support.x, orthogonal=True).features(support.x)
    assert phi.shape == (N, N)
    by_factors, scale, found = with_noise_of_features(plan, support, phi)
    wider = torch.cat([phi, torch.zeros(N, 1, dtype=phi.dtype)], 1)  # as many directions, by the whole path
    by_path, expected, unknown = with_noise_of_features(plan, support, wider)
    assert scale == pytest.approx(expected, rel=1e-8)
    assert by_factors.model.noise == pytest.approx(by_path.model.noise, rel=1e-8)
    assert by_factors.model.noise > 3 * plan.model.noise
    assert unknown is None
    assert found is not None
    exact = by_factors.model.condition(phi * scale**0.5, support.y, 2, support.weight)
    torch.testing.assert_close(found.latent, exact.leave_one_out(support.left_out)[0], rtol=1e-8, atol=1e-8)
    of_the_kernel = with_noise_of_features(plan, support, None)
    assert of_the_kernel.scale == pytest.approx(scale, rel=1e-10)
    assert of_the_kernel.found is not None
    torch.testing.assert_close(of_the_kernel.found.dual, found.dual)


def test_a_member_of_a_part_s_choice_is_least_squares_by_all_rows() -> None:
    """Means, evidence and what is made of rows later are those of its kernel and noise."""
    X, y = rows()
    model = GPClassifier("matern12", "least_squares").fit(
        *(np.concatenate([part, more]) for part, more in zip((X, y), rows(1), strict=True))
    )
    fitted = model._fitted
    (member,) = fitted.members
    assert isinstance(member.process.space, LazyWeightSpace)
    labelled = fitted.learnt
    support = Support.of(labelled, 2, member.plan.scaling, member.plan.device)
    features = Inducing(member.plan.kernel, support.x, orthogonal=True)
    exact = member.plan.model.condition(features.features(support.x), support.y, 2, support.weight)
    assert member.log_evidence == pytest.approx(exact.log_evidence, rel=1e-9)
    queries = torch.from_numpy(np.random.default_rng(2).uniform(-2, 2, size=(7, 2)))
    asked = features.queries(torch.from_numpy(member.plan.scaling(queries.numpy())).unsqueeze(0))
    expected = exact.posterior.query(*asked)
    mean, variance = member.latents(queries, 2)
    torch.testing.assert_close(mean, expected.mean[0].mT, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(variance, expected.spread[0].mT, rtol=1e-6, atol=1e-7)


def test_a_member_with_more_noise_has_the_means_of_its_kernel(problem: tuple[Plan, Support, Inducing]) -> None:
    """Coefficients are those of the output scale that suits the noise."""
    plan, support, _ = problem
    settings = Settings.checked(GPClassifier("matern12").get_params(deep=False), 0, N)
    how = MemberFit(settings, is_tuned=True, by_part=True, of_two=False)
    member, probabilities = how.member(plan, support, None)
    scale, before = (float(one.kernel.outputscale.detach()) for one in (member.plan, plan))
    assert scale != pytest.approx(before)
    features = member.process.approximation
    exact = member.plan.model.condition(features.features(support.x), support.y, 2, support.weight)
    assert exact.moments is not None
    values = features.values(support.x.unsqueeze(0))
    torch.testing.assert_close(member.process.means(values)[0], exact.moments[0], rtol=1e-7, atol=1e-7)
    assert member.log_evidence == pytest.approx(exact.log_evidence, rel=1e-9)
    assert probabilities is not None


def test_a_kernel_of_another_scale_has_these_roots(problem: tuple[Plan, Support, Inducing]) -> None:
    plan, support, features = problem
    phi = features.features(support.x)
    found, scale, _ = with_noise_of_features(plan, support, phi)
    assert scale != 1
    scaled = features.scaled(found.kernel, scale)
    expected = scaled.features(support.x)
    torch.testing.assert_close(phi * scale**0.5, expected, rtol=1e-10, atol=1e-10)
    exact = replace(features, kernel=found.kernel)
    assert exact.kernel == scaled.kernel
    torch.testing.assert_close(*(part.roots.features @ part.roots.features.mT for part in (exact, scaled)))
    torch.testing.assert_close(phi @ phi.mT * scale, expected @ expected.mT)


def test_an_average_whose_members_do_not_know_left_out_rows_keeps_its_temperature(
    problem: tuple[Plan, Support, Inducing],
) -> None:
    plan, support, _ = problem
    members = (SimpleNamespace(plan=plan),) * 2
    judged = Judged(members, (None, None), support, False)  # type: ignore[arg-type]
    assert judged.of_average((0.8, 0.1))[:2] == (0.8, 0.1)
