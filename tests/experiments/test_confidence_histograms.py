import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from experiments import confidence_histograms as study
from experiments import registry
from sureshot.likelihoods import Softmax


def no_progress(what: str, fraction: float) -> None:
    assert 0 <= fraction <= 1


def outcome(**options):
    return study.run(data_root=None, progress=no_progress, **options)


def test_two_classes_give_the_expected_mean_confidence():
    # With C = 2 the softmax confidence is sigma(|f1 - f2|) and f1 - f2 ~ N(0, 2).
    latents = torch.randn(2, 40_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    frame, _ = study.confidence_table(latents, {"softmax": Softmax()})
    expected = quad(lambda d: 2 * norm.pdf(d, scale=2**0.5) / (1 + np.exp(-d)), 0, 20)[0]
    row = frame.iloc[0]
    assert abs(row["mean"] - expected) < 4 * row["standard error"]
    assert row["total variation to softmax"] == 0


def test_statements_are_computed_and_hold_at_the_papers_size():
    found = outcome(n_draws=(20_000, 5_000))
    assert [verdict.holds for verdict in found.verdicts] == [True] * 6
    frame = {table.name: table.frame.set_index("likelihood") for table in found.tables}["mean-0"]
    # Algebra: least squares with unit noise, normalised, is a softmax of twice the latents.
    np.testing.assert_allclose(frame.loc["gaussian", "mean"], frame.loc["softmax, temperature 0.5", "mean"], rtol=1e-12)


def test_a_statement_can_fail():
    # Without the shift the logistic-softmax is no approximation of the softmax.
    (table,) = outcome(means=(0.0,), n_draws=(2000,)).tables
    verdicts = study.judge({-5.0: table.frame.set_index("likelihood")})
    assert not verdicts[0].holds


def test_density_keeps_its_mass_in_the_interval():
    values = np.random.default_rng(0).uniform(0.2, 1, 4000)
    x = np.linspace(0.2, 1, 500)
    density = study.mirrored_density(values, x, 0.2)
    assert abs(np.trapezoid(density, x) - 1) < 1e-2
    np.testing.assert_allclose(density, 1 / 0.8, rtol=0.15)


def test_equal_seeds_give_equal_tables_and_no_global_generator_is_used():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second = (outcome(means=(0.0,), n_draws=(500,)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    for a, b in zip(first.tables, second.tables, strict=True):
        assert a.frame.equals(b.frame)


def test_through_the_registry(tmp_path):
    told: list[tuple[str, float]] = []
    result = registry.run(
        "confidence-histograms",
        output=tmp_path,
        progress=lambda what, fraction: told.append((what, fraction)),
        n_draws=(500, 300),
        seed=3,
    )
    assert all(what for what, _ in told)
    assert [fraction for _, fraction in told] == sorted(fraction for _, fraction in told)
    assert result.seeds == (3,)
    assert len(result.figures) == 2
    for path in result.figures:
        assert 2_000 < path.stat().st_size < 200_000


def test_unknown_option_names_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown option 'draws'.*n_draws"):
        outcome(draws=3)
