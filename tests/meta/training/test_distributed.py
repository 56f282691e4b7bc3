"""Two processes do what one does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from sureshot.data.labelled import FewShotData
from sureshot.meta.training import EpisodicTraining, TrainingConfig, load_checkpoint, load_learner, read_log, train
from sureshot.meta.training.episodic import build_learner
from sureshot.networks import Processes, processes
from sureshot.networks.loop import Run

needs_gloo = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this build of torch has no gloo"
)

# Seven tasks do not divide by two: the shares are three and four.
SETTINGS = {"episodes": 21, "episodes_per_step": 7, "checkpoint_every": 21, "log_every": 7}

RUNS: dict[str, dict[str, Any]] = {
    # This learner keeps its output scale: a parameter without a gradient.
    "plain": {"learner": {"name": "cdkt_ml"}, "training": SETTINGS},
    "warm": {
        "learner": {"name": "cdkt_ml", "preset": "paper"},
        "training": SETTINGS | {"episodes": 14, "checkpoint_every": 7},
    },
    "fitted": {"learner": {"name": "ove_mean_field_pl"}, "training": SETTINGS, "validation": {"every": 21}},
}

PROGRAM = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import numpy as np
from conftest import tiny_config, tiny_data
from sureshot.meta.training import EpisodicTraining, train
from sureshot.meta.training.episodic import build_learner
from sureshot.networks import processes
from sureshot.networks.loop import Run

folder, runs, (port, *ports) = Path(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4])
config, data = tiny_config(**runs["plain"]), tiny_data()
os.environ["MASTER_PORT"] = str(port)
with processes("cpu") as group:
    trainee = EpisodicTraining(build_learner(config, data.train), config, data, group)
    run = Run(trainee, config.loop_settings(), folder / f"rank{group.rank}", group)
    run.module.train()
    run.backward(0)
    found = {name: p.grad.numpy() for name, p in run.module.named_parameters() if p.grad is not None}
    np.savez(folder / f"gradients{group.rank}.npz", **found)
for (name, settings), port in zip(runs.items(), ports):
    os.environ["MASTER_PORT"] = str(port)
    train(tiny_config(**settings), folder / name, data=data)
    threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    assert not any("gloo" in name for name in threads), f"the process group is still there: {threads}"
"""


def run_of(config: TrainingConfig, data: FewShotData, folder: Path, group: Processes) -> Run:
    trainee = EpisodicTraining(build_learner(config, data.train), config, data, group)
    return Run(trainee, config.loop_settings(), folder, group)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the gradients of two processes, and the runs that they have trained, each joined anew."""
    folder = tmp_path_factory.mktemp("two")
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(1 + len(RUNS))]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in probes]
    texts = (PROGRAM, str(Path(__file__).parent), str(folder), json.dumps(RUNS), json.dumps(ports))
    shared = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        logs = [stack.enter_context(open(folder / f"errors{rank}.txt", "w+", encoding="utf-8")) for rank in range(2)]
        started = []
        for rank, log in enumerate(logs):
            environment = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", *texts], env=environment, stderr=log))
            stack.callback(process.kill)
            started.append(process)
        codes = [process.wait(timeout=300) for process in started]
        for log in logs:
            log.seek(0)
        assert codes == [0, 0], "\n".join(log.read() for log in logs)
    return folder


@pytest.mark.slow
@needs_gloo
def test_two_processes_have_the_gradients_of_one(
    configure: Callable[..., TrainingConfig], data: FewShotData, two: Path, tmp_path: Path
) -> None:
    config = configure(**RUNS["plain"])
    with processes("cpu") as group:
        run = run_of(config, data, tmp_path / "alone", group)
    run.module.train()
    run.backward(0)
    alone = {name: p.grad for name, p in run.module.named_parameters() if p.grad is not None}
    for rank in range(2):
        with np.load(two / f"gradients{rank}.npz") as shared:
            assert set(shared.files) == set(alone)
            for name, gradient in alone.items():
                assert gradient is not None
                torch.testing.assert_close(
                    torch.from_numpy(shared[name]), gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max() + 1e-3)
                )
    result = train(config, tmp_path / "alone", data=data)
    assert result.episodes == 21
    ours, theirs = read_log(tmp_path / "alone"), read_log(two / "plain")
    assert [record["episodes"] for record in theirs] == [record["episodes"] for record in ours]
    assert theirs[0]["loss"] == pytest.approx(ours[0]["loss"], rel=1e-5)
    written = {path.name for path in (two / "plain").iterdir()}
    assert written == {"best.safetensors", "last.safetensors", "metrics.jsonl"}
    load_learner(two / "plain")


@pytest.mark.slow
@needs_gloo
def test_each_process_carries_its_own_tasks_over(
    configure: Callable[..., TrainingConfig], data: FewShotData, two: Path, tmp_path: Path
) -> None:
    """Two processes carry what one carries: the checkpoint holds all tasks, and any number of processes resumes it."""
    train(configure(**RUNS["warm"]), tmp_path, data=data)
    files = [load_checkpoint(folder / "last.safetensors").artifact.arrays for folder in (two / "warm", tmp_path)]
    for name in ("carried.mean", "carried.variance", "carried.precision", "carried.shape"):
        assert files[0][name].shape[0] == 7
        np.testing.assert_allclose(files[0][name], files[1][name], rtol=2e-2, atol=2e-3)
    longer = {**RUNS["warm"], "training": SETTINGS | {"checkpoint_every": 7}}
    train(configure(**longer), two / "warm", data=data)
    assert read_log(two / "warm")[-1]["episodes"] == 21


@pytest.mark.slow
@needs_gloo
def test_what_is_fitted_to_validation_classes_is_not_averaged(two: Path) -> None:
    """Only one process validates; the checkpoint to resume from, which averages buffers, has what it fitted."""
    best, last = (load_checkpoint(two / "fitted" / f"{name}.safetensors").artifact.arrays for name in ("best", "last"))
    assert abs(best["model.centre"]).max() > 0
    for name, values in best.items():
        np.testing.assert_array_equal(last[name], values, err_msg=name)


def test_more_processes_than_tasks(configure: Callable[..., TrainingConfig], data: FewShotData, tmp_path: Path) -> None:
    config = configure(training={"episodes_per_step": 2})
    with pytest.raises(ValueError, match=r"3 processes share 2 episodes of a step: raise training\.episodes_per_step"):
        run_of(config, data, tmp_path, Processes(0, 3, torch.device("cpu")))
