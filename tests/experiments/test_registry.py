import shlex

import pytest

from experiments import registry
from experiments.command import parse_settings
from experiments.experiment import Experiment


def test_every_name_leads_to_an_experiment_of_that_name():
    summaries = registry.names()
    assert {"confidence-histograms", "likelihood-contours", "iris"} <= set(summaries)
    for name, summary in summaries.items():
        experiment = registry.get_experiment(name)
        assert isinstance(experiment, Experiment)
        assert experiment.name == name
        assert summary
        assert "\n" not in summary


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"no experiment 'irises'.*iris"):
        registry.run("irises", output=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_command_is_the_exact_one():
    assert registry.command_line("iris", {}) == "python -m experiments iris"
    given = {"n_splits": 3, "sizes": (1, 2), "seed": 4}
    command = registry.command_line("iris", given)
    assert command == "python -m experiments iris --set n_splits=3 --set 'sizes=[1, 2]' --set seed=4"
    parts = shlex.split(command)
    assert parse_settings(parts[5::2]) == given


def test_a_missing_data_root_is_found_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.delenv("SURESHOT_DATA", raising=False)
    for name in registry.names():
        if registry.get_experiment(name).needs_data:
            with pytest.raises(ValueError, match="SURESHOT_DATA"):
                registry.run(name, output=tmp_path)
    assert not list(tmp_path.iterdir())
