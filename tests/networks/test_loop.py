"""The loop trains what knows no episodes: the same files after a kill, its own counts, and plain words for mistakes.

What it does with learners (early stopping, divergence, several processes) is shown in `tests/meta/training`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sureshot.networks import LoopSettings, Scores, Trained, milestones
from sureshot.networks.checkpoint import load_checkpoint, moment_names, restore, restore_optimiser
from sureshot.networks.log import read_log
from sureshot.networks.seeds import generator_for
from sureshot.persistence import ArtifactError, load_artifact
from tests.networks.softmax import SETTINGS, SoftmaxByDescent, SoftmaxTraining, run

HERE = Path(__file__).parent


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return run(tmp_path_factory.mktemp("whole"))


def test_a_run_is_counted_in_units_of_its_trainee(whole: Trained) -> None:
    assert (whole.units, whole.stopped_early) == (240, False)
    records = [record for record in read_log(whole.log.parent, "rows") if record["kind"] == "validation"]
    assert [record["rows"] for record in records] == [60, 120, 180, 240]
    scores = [record["nll"] for record in records]
    assert whole.scores == {"nll": min(scores)}
    assert scores[-1] < scores[0]
    header = load_checkpoint(whole.last, "softmax_network").header
    assert (header["progress"]["rows"], header["network"]) == (240, {"hidden": 8})


def test_the_best_checkpoint_is_the_module_that_was_scored(whole: Trained) -> None:
    trainee = SoftmaxTraining()
    restore(load_checkpoint(whole.best, trainee.kind), trainee.module)
    assert trainee.validate().values == whole.scores


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from softmax import run

def kill(what, fraction):
    if round(fraction * 240) == 150:
        os.kill(os.getpid(), signal.SIGKILL)

run(Path(sys.argv[2]), progress=kill)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX systems")
def test_a_killed_run_is_resumed_to_the_same_bits(whole: Trained, tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(HERE), str(tmp_path)], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert load_artifact(tmp_path / "last.safetensors").header["progress"]["rows"] == 90
    assert read_log(tmp_path, "rows")[-1]["rows"] == 150
    torch.rand(3)  # the state of the global generator is of no account
    run(tmp_path)
    assert contents(tmp_path) == contents(whole.best.parent)


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """Interrupts raise KeyboardInterrupt, also where the suite was started in the background, which ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts")
def test_an_interrupt_writes_a_checkpoint_first(whole: Trained, tmp_path: Path) -> None:
    def interrupt(what: str, fraction: float) -> None:
        if round(fraction * 240) == 150:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, progress=interrupt)
    assert load_artifact(tmp_path / "last.safetensors").header["progress"]["rows"] == 156  # the step was ended
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    run(tmp_path)
    assert contents(tmp_path) == contents(whole.best.parent)


@pytest.mark.usefixtures("_interrupts")
def test_a_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    def interrupt(what: str, fraction: float) -> None:
        if round(fraction * 240) == 150:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, progress=interrupt)
    assert load_artifact(tmp_path / "last.safetensors").header["progress"]["rows"] == 90


def test_descent_with_momentum_is_torchs_own_loop(tmp_path: Path) -> None:
    trainee = SoftmaxByDescent()
    run(tmp_path, trainee, replace(SETTINGS, length=180, validate_every=0))
    other = SoftmaxByDescent()
    optimiser = other.optimiser()
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [10, 25])  # steps of six rows
    for step in range(30):
        optimiser.zero_grad()
        other.losses(step, slice(0, 6), generator_for(0, "noise", step, 0)).mean().backward()
        optimiser.step()
        schedule.step()
    for name, value in other.module.state_dict().items():
        torch.testing.assert_close(trainee.module.state_dict()[name], value, msg=name)


def test_descent_with_momentum_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(whole, SoftmaxByDescent())
    for length in (120, 240):
        run(parts, SoftmaxByDescent(), replace(SETTINGS, length=length))
    assert contents(parts) == contents(whole)


def test_an_optimiser_takes_over_its_own_moments_only(tmp_path: Path) -> None:
    run(tmp_path, SoftmaxByDescent(), replace(SETTINGS, length=12))
    trainee = SoftmaxTraining()
    checkpoint = load_checkpoint(tmp_path / "last.safetensors", trainee.kind)
    with pytest.raises(ArtifactError, match=r"lacks the array 'optimiser\.step\."):
        restore_optimiser(checkpoint, trainee.module, trainee.optimiser())
    plain = torch.optim.SGD(trainee.parameter_groups())
    restore_optimiser(checkpoint, trainee.module, plain)
    assert not plain.state
    with pytest.raises(ValueError, match="state of Adagrad cannot be saved: use Adam, AdamW or SGD"):
        moment_names(torch.optim.Adagrad(trainee.parameter_groups()))


def test_milestones() -> None:
    assert [milestones(units, (10, 20)) for units in (0, 9, 10, 20)] == pytest.approx([1, 1, 0.1, 0.01])
    assert milestones(5, ()) == 1


def test_other_settings_do_not_resume(tmp_path: Path) -> None:
    run(tmp_path, settings=replace(SETTINGS, length=6))
    with pytest.raises(ValueError, match=r"of a run with other settings: training\.rate = 0\.01 then, 0\.02 now"):
        run(tmp_path, SoftmaxTraining(0.02))
    assert run(tmp_path, SoftmaxTraining(0.02), replace(SETTINGS, length=12), resume=False).units == 12


def test_a_checkpoint_of_another_kind_does_not_resume(tmp_path: Path) -> None:
    class Other(SoftmaxTraining):
        kind = "another"

    run(tmp_path, settings=replace(SETTINGS, length=6))
    with pytest.raises(ArtifactError, match="of kind 'softmax_network', expected 'another'"):
        run(tmp_path, Other())


def test_without_validation_the_last_is_the_best(tmp_path: Path) -> None:
    class Unscored(SoftmaxTraining):
        def validate(self) -> Scores:
            raise AssertionError("nobody asked for scores")

    found = run(tmp_path, Unscored(), LoopSettings(length=12))
    assert (found.best_units, found.scores) == (12, {})


def test_a_loss_that_is_not_finite_names_the_trainee_and_its_units(tmp_path: Path) -> None:
    class Broken(SoftmaxTraining):
        def losses(self, step: int, share: slice, generator: torch.Generator) -> Tensor:
            losses = super().losses(step, share, generator)
            return losses / 0 if step == 2 else losses

    with pytest.raises(ValueError, match=r"'softmax' diverged at step 2 \(after 12 rows\): the loss is inf; no check"):
        run(tmp_path, Broken())


def test_every_step_has_noise_of_its_own(tmp_path: Path) -> None:
    seeds = []

    class Watched(SoftmaxTraining):
        def losses(self, step: int, share: slice, generator: torch.Generator) -> Tensor:
            seeds.append(generator.initial_seed())
            return super().losses(step, share, generator)

    run(tmp_path, Watched(), LoopSettings(length=60))
    assert len(set(seeds)) == 10


@pytest.mark.parametrize("name", ["length", "checkpoint_every", "log_every", "patience"])
def test_settings_out_of_range(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        LoopSettings(**{"length": 6, name: 0})


def test_scores_are_better_or_not() -> None:
    assert Scores({"a": 1.0}, "a", larger_is_better=True).better_than({})
    for larger in (True, False):
        assert Scores({"a": 1.0, "b": 0.0}, "a", larger).better_than({"a": 0.5, "b": 9.0}) is larger
        assert not Scores({"a": 1.0}, "a", larger).better_than({"a": 1.0})
