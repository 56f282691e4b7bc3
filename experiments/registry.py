"""The experiments by name.

Modules are imported when they are asked for. `run` times the experiment, writes its page, tables and
figures, and returns what was written.
"""

from __future__ import annotations

import json
import logging
import shlex
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.experiment import Experiment, ExperimentResult, Progress, plain_value
from experiments.tables import write_result
from sureshot.data.checks import near
from sureshot.data.root import data_root as find_data_root

logger = logging.getLogger(__name__)

_MODULES = (
    "confidence-histograms",
    "likelihood-contours",
    "gp-basics",
    "functions",
    "image-completion",
    "deep-kernels",
    "expressive-kernels",
    "iris",
    "clinc150",
    "digits",
    "few-labels",
    "clinc150-transfer",
    "fscil-clinc150",
    "fscil-clinc150-studies",
    "cdkt-studies",
    "deep-tree",
    "fscil-miniimagenet32",
    "smc-table1",
    "smc-toys",
    "smc-streams",
    "smc-recovery",
    "defaults",
    "embeddings-panel",
    "unknowns",
    "decisions",
    "what-to-label",
    "mixed-tables",
    "large-tables",
    "uci-regression",
    "large-regression",
    "approximations",
    "co2",
    "series-structures",
    "streams",
)
"""Experiments of the modules of their names, each its ``EXPERIMENT``."""

_IMAGE_CAMPAIGNS = ("omniglot-choice", "omniglot-emnist", "cub", "miniimagenet", "miniimagenet-cub", "miniimagenet32")
"""Experiments of `experiments.campaigns.images`."""


def names() -> dict[str, str]:
    """Every experiment and one line on what it measures."""
    return {name: get_experiment(name).summary for name in (*_MODULES, *_IMAGE_CAMPAIGNS)}


def get_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name in _MODULES:
        experiment = import_module(f"experiments.{name.replace('-', '_')}").EXPERIMENT
    elif name in _IMAGE_CAMPAIGNS:
        experiment = import_module("experiments.campaigns.images").EXPERIMENTS[name]
    else:
        known = (*_MODULES, *_IMAGE_CAMPAIGNS)
        raise ValueError(f"there is no experiment {name!r}{near(name, known)}; choose one of {', '.join(known)}")
    assert isinstance(experiment, Experiment)
    return experiment


def run(
    name: str,
    *,
    data_root: Path | None = None,
    output: Path,
    progress: Progress | None = None,
    **options: Any,
) -> ExperimentResult:
    """Run an experiment and write its page, tables and figures to the folder `output`.

    The data root (by default that of ``SURESHOT_DATA``) is looked up before anything is computed, and only for
    experiments on real data. Options replace defaults of the experiment's settings.
    """
    experiment = get_experiment(name)
    reads_data = experiment.needs_data and options.get("train", True)  # a campaign that only collects reads none
    root = find_data_root(data_root, looking_for=f"the data of {name}") if reads_data else None
    started = time.perf_counter()
    outcome = experiment.run(data_root=root, progress=progress or _log_progress, **options)
    seconds = time.perf_counter() - started
    return write_result(outcome, name=name, output=output, command=command_line(name, options), wall_seconds=seconds)


def command_line(name: str, options: dict[str, Any]) -> str:
    """What repeats the run, with the settings that replaced defaults."""
    settings = [f"{key}={json.dumps(plain_value(value))}" for key, value in options.items()]
    return shlex.join(["python", "-m", "experiments", name, *[part for item in settings for part in ("--set", item)]])


def _log_progress(what: str, fraction: float) -> None:
    logger.info("%3.0f %% %s", 100 * fraction, what)
