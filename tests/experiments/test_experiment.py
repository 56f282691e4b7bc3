from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments import registry
from experiments.experiment import configure


@dataclass(frozen=True)
class Settings:
    sizes: tuple[int, ...] = (1, 2)
    rate: float = 0.5
    name: str = "a"
    fast: bool = False
    limit: int | None = None


def test_defaults_are_replaced():
    found = configure(Settings, {"sizes": [3], "rate": 1, "fast": True, "limit": 4})
    assert found == Settings((3,), 1, "a", True, 4)
    assert configure(Settings, {}) == Settings()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 3}, "unknown option 'size': this experiment has sizes, rate"),
        ({"sizes": 3}, "sizes must be a list of whole numbers, got 3"),
        ({"sizes": ()}, "sizes must not be empty"),
        ({"sizes": (1, "two")}, "each entry of sizes must be a whole number, got 'two'"),
        ({"rate": "high"}, "rate must be a number, got 'high'"),
        ({"rate": True}, "rate must be"),
        ({"fast": 1}, "fast must be"),
        ({"limit": "none"}, "limit must be a whole number, got 'none'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        configure(Settings, options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("iris", {"sizes": (5, 50)}, "between 1 and 49"),
        ("iris", {"sizes": (5, 3)}, "must increase"),
        ("iris", {"n_splits": 0}, "n_splits must be at least 1"),
        ("confidence-histograms", {"n_draws": (10,)}, "one number for each of the 2 means"),
        ("confidence-histograms", {"temperatures": (0.5,)}, "must be 1"),
        ("likelihood-contours", {"step": 0.0}, "step must be between 0"),
    ],
)
def test_impossible_settings_are_refused_before_anything_is_written(name, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        registry.run(name, output=tmp_path, **options)
    assert not list(tmp_path.iterdir())


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw of text builds tables of Unicode
@given(st.dictionaries(st.sampled_from(["sizes", "rate", "name", "fast"]), st.none() | st.integers() | st.text()))
def test_any_option_gives_settings_or_a_clear_error(options):
    kinds = {"sizes": tuple, "rate": (int, float), "name": str, "fast": bool}
    if all(isinstance(value, kinds[key]) for key, value in options.items()):
        found = configure(Settings, options)
        assert all(getattr(found, key) == (float(value) if key == "rate" else value) for key, value in options.items())
    else:
        with pytest.raises(ValueError, match="|".join(options)):
            configure(Settings, options)
