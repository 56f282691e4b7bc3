"""The pictures of Gaussian processes in one column: their numbers against dense matrices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from experiments import gp_basics_study as study
from experiments import gp_posteriors as posteriors
from experiments import registry

SETTINGS = study.Settings(n_rows=20)
DATA = study.made(SETTINGS)
TASK = DATA.task
X, Y = (part.numpy() for part in (TASK.x[:, 0], TASK.y))
BUDGET = posteriors.Budget(study.evenly(6), 30, 8, 0)
FAR = torch.tensor([[12.0]], dtype=torch.float64)


def matrix(x: np.ndarray, z: np.ndarray, lengthscale: float = SETTINGS.lengthscale) -> np.ndarray:
    return np.exp(-0.5 * ((x[:, None] - z) / lengthscale) ** 2)


def test_the_exact_answer_is_that_of_dense_matrices() -> None:
    answer, q = posteriors.exact_answer(TASK), np.array([-4.0, 0.9, 2.0])
    noisy, cross = matrix(X, X) + TASK.noise * np.eye(len(X)), matrix(X, q)
    mean, deviation = answer.at(torch.from_numpy(q)[:, None])
    solved = np.linalg.solve(noisy, cross)
    np.testing.assert_allclose(mean, solved.T @ Y, atol=1e-9)
    np.testing.assert_allclose(deviation**2, 1 - (cross * solved).sum(0), atol=1e-9)
    assert answer.evidence == pytest.approx(multivariate_normal.logpdf(Y, cov=noisy), abs=1e-8)
    one_out = []
    for row in range(len(X)):
        kept = np.arange(len(X)) != row
        weights = np.linalg.solve(noisy[kept][:, kept], noisy[kept, row])
        variance = noisy[row, row] - weights @ noisy[kept, row]
        one_out.append(norm.logpdf(Y[row], weights @ Y[kept], variance**0.5))
    assert answer.left_out == pytest.approx(np.mean(one_out), abs=1e-8)


def test_terms_of_the_evidence_are_those_of_dense_matrices() -> None:
    scores = study.scored(TASK, torch.tensor([0.2, 1.0], dtype=torch.float64))
    for place, lengthscale in enumerate((0.2, 1.0)):
        noisy = matrix(X, X, lengthscale) + TASK.noise * np.eye(len(X))
        assert scores.fit[place] == pytest.approx(-0.5 * Y @ np.linalg.solve(noisy, Y), abs=1e-8)
        assert scores.complexity[place] == pytest.approx(-0.5 * np.linalg.slogdet(2 * np.pi * noisy)[1], abs=1e-8)
        answer = posteriors.exact_answer(replace(TASK, kernel=study.rbf(lengthscale)))
        assert scores.left_out[place] == pytest.approx(len(Y) * answer.left_out, abs=1e-8)


def test_approximations_go_wrong_as_they_are_known_to() -> None:
    exact, found = posteriors.exact_answer(TASK), posteriors.answers(TASK, BUDGET)
    assert found["sor"].at(FAR).deviation < 0.01
    assert min(found[name].at(FAR).deviation[0] for name in ("inducing", "fitc", "vfe", "svgp")) > 0.99
    assert found["vfe"].evidence == pytest.approx(found["svgp"].evidence, abs=1e-9)
    assert found["vfe"].evidence < exact.evidence
    wide = study.grid(12.0)
    assert np.abs(found["random_features"].at(wide[:200]).mean).max() > 0.3
    assert np.abs(exact.at(wide[:200]).mean).max() < 0.01


def test_all_approximations_are_exact_with_all_there_is() -> None:
    """All rows as inducing inputs or neighbours; frequencies are never all."""
    budget = replace(BUDGET, inputs=TASK.x, n_neighbours=len(Y))
    exact, x = posteriors.exact_answer(TASK), study.grid(4.0, 0.25)
    for name, answer in posteriors.answers(TASK, budget, [*posteriors.PLACED]).items():
        if name == "sor":  # not beyond the rows
            continue
        for ours, theirs in zip(answer.at(x), exact.at(x), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-3, err_msg=name)
        assert answer.left_out == pytest.approx(exact.left_out, abs=1e-3)
        if name != "nearest_neighbours":
            assert answer.evidence == pytest.approx(exact.evidence, abs=1e-4)


def test_products_are_the_kernel_by_other_algebra() -> None:
    exact, found = posteriors.exact_answer(TASK), posteriors.answers(TASK, BUDGET, ())
    x = study.grid(8.0, 0.25)
    for name, most in {"iterative": 1e-6, "toeplitz": 1e-6, "kronecker": 1e-6, "kiss": 5e-3}.items():
        answer = found[name]
        for ours, theirs in zip(answer.at(x), exact.at(x), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=most, err_msg=name)
        assert answer.left_out == pytest.approx(exact.left_out, abs=most)
        assert answer.evidence == pytest.approx(exact.evidence, abs=20 * most)


def test_draws_have_the_covariance_of_the_kernel() -> None:
    found, table = study.views(replace(SETTINGS, samples=4000), study.grid(2.0, 0.5))
    assert (table["features' products less kernel"].astype(float) < 1e-12).all()
    assert (table[["weights' draws", "kernel's draws"]] < 0.15).all(axis=None)
    np.testing.assert_allclose(found[0].kernel, 1 + study.grid(2.0, 0.5)[:, 0].numpy())


def test_stages_pass_near_their_rows() -> None:
    prior, *given = study.stages(DATA, study.grid(3.0, 0.5), 0)
    np.testing.assert_allclose(prior.moments.mean, 0, atol=1e-12)
    np.testing.assert_allclose(prior.moments.deviation, 1)
    for stage, count in zip(given, study.FEW, strict=True):
        assert len(stage.rows.x) == count
        assert stage.moments.deviation.min() < 0.5
        assert stage.draws.shape == (5, 13)


def test_through_the_registry(tmp_path: Path) -> None:
    few = {"draws": 1, "steps": 40, "inducing_counts": (4, 8), "frequency_counts": (4, 16)}
    result = registry.run("gp-basics", output=tmp_path, **few)
    assert len(result.figures) == 9
    assert all(2_000 < path.stat().st_size < 200_000 for path in result.figures)
    tables = {table.name: table.frame for table in result.tables}
    rows = tables["approximations"].set_index("approximation")
    assert {"exact", "sor", "fitc", "vfe", "svgp", "ssgp", "fastfood", "kiss", "nearest_neighbours"} <= set(rows.index)
    assert rows.loc["sor", "deviation at the end"] < 0.01
    assert rows.loc["vfe", "evidence"] < rows.loc["vfe", "exact evidence"]
    assert rows.loc["exact"].iloc[:4].eq(0).all()
    assert [verdict.claim for verdict in result.verdicts if not verdict.holds] == []


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="n_rows must be at least 14"):
        study.Settings(n_rows=5)
