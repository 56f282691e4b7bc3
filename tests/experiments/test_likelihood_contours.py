import math

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad

from experiments import likelihood_contours as study
from experiments import registry


def test_gaussian_posterior_is_the_closed_form():
    # Prior N(0, 1), target t = +1 / -1, noise variance s: mean t / (1 + s), variance s / (1 + s).
    grid = study.make_grid(7.0, 0.05)
    table = study.posterior_table(grid, 0.0, (1.0, 0.5)).set_index(["temperature", "likelihood"])
    for temperature, noise in (("1", 1.0), ("0.5", 0.25)):
        row = table.loc[(temperature, "gaussian")]
        np.testing.assert_allclose(row[["mean f1", "mean f2"]].astype(float), [1 / (1 + noise), -1 / (1 + noise)])
        np.testing.assert_allclose(row[["variance f1", "variance f2"]].astype(float), noise / (1 + noise))
        assert abs(row["correlation"]) < 1e-12


def test_moments_agree_with_adaptive_quadrature():
    table = study.posterior_table(study.make_grid(7.0, 0.05), 0.0, (1.0,)).set_index("likelihood")

    def integral(power: int) -> float:
        def integrand(f2: float, f1: float) -> float:
            likelihood = 1 / (1 + math.exp(f2 - f1)) / (1 + math.exp(-f1))
            return f1**power * likelihood * math.exp(-(f1**2 + f2**2) / 2) / (2 * math.pi)

        return dblquad(integrand, -7, 7, -7, 7, epsabs=1e-9)[0]

    mass = integral(0)
    mean = integral(1) / mass
    assert table.loc["one-vs-each", "mean f1"] == pytest.approx(mean, abs=1e-6)
    assert table.loc["one-vs-each", "variance f1"] == pytest.approx(integral(2) / mass - mean**2, abs=1e-6)


def test_distances_are_zero_where_the_likelihoods_are_one_function():
    table = study.posterior_table(study.make_grid(6.0, 0.1), -100.0, (1.0, 0.2))
    same = table[table["likelihood"].isin(["softmax", "one-vs-each"])]
    assert same["total variation"].max() < 1e-12
    others = table[~table["likelihood"].isin(["softmax", "one-vs-each"])]
    assert others["total variation"].min() > 0.05
    assert (table["divergence"] > -1e-12).all()


def test_logistic_softmax_squares_follow_the_limits():
    squares = study.quadrant_table((1.0, 0.2))
    assert squares["around -5"].max() < 0.01
    # Where both latents are positive and cold, logistic-softmax is 1/2 and the softmax anything from 0 to 1.
    assert squares["around 5"].iloc[1] == pytest.approx(0.5, abs=1e-3)


def test_statements_are_decided_by_the_table():
    grid = study.make_grid(6.0, 0.1)
    squares = study.quadrant_table((1.0,))
    rows = study.posterior_table(grid, 0.0, (1.0,))
    honest = {verdict.claim: verdict.holds for verdict in study.judge({0.0: rows}, squares)}
    swapped = rows.copy()
    swapped["likelihood"] = swapped["likelihood"].replace({"gaussian": "softmax", "softmax": "gaussian"})
    changed = {verdict.claim: verdict.holds for verdict in study.judge({0.0: swapped}, squares)}
    peaked = next(claim for claim in honest if "Gaussian posterior" in claim)
    assert honest[peaked]
    assert not changed[peaked]


def test_axes_of_a_covariance_are_its_eigenvalues():
    covariance = np.array([[0.8, 0.3], [0.3, 0.5]])
    found = study._axes(covariance[0, 0], covariance[1, 1], covariance[0, 1])
    np.testing.assert_allclose(found, np.linalg.eigvalsh(covariance)[::-1])


def test_grid_is_symmetric_and_contains_the_origin():
    grid = study.make_grid(2.0, 0.5)
    assert grid.first.shape == (9, 9)
    assert torch.equal(grid.first, grid.second.mT)
    assert grid.first[4, 4] == 0
    assert grid.latents(-100.0).shape == (3, 81)


def test_through_the_registry(tmp_path):
    result = registry.run("likelihood-contours", output=tmp_path, temperatures=(1.0,), step=0.1)
    assert len(result.figures) == 4
    assert all(2_000 < path.stat().st_size < 200_000 for path in result.figures)
    assert len(result.verdicts) == 9
    assert "nothing is random" in result.files[0].read_text()
