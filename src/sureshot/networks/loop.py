"""The training loop.

A step averages the trainee's losses and lets its optimiser (Adam, unless it says otherwise) follow the gradient; every
so many units the trainee is scored, the best module is kept, and everything is saved so that a run that was killed
resumes from its last checkpoint to the result that it would have had, to the last bit (on the same machine with the
same number of threads). An interrupt writes that checkpoint first; a second one does not wait.

A folder holds a run::

    last.safetensors     to resume from: module, optimiser, counters
    best.safetensors     the module with the best validation score, for use
    metrics.jsonl        the log

Gradients are never clipped, unusually large ones are counted in the log, and a loss beyond any use and numbers that are
not finite end the run with an error that says where. Such numbers are never saved.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sureshot.networks.checkpoint import (
    BEST_NAME,
    LAST_NAME,
    arrays_of,
    carried_of,
    load_checkpoint,
    restore,
    restore_optimiser,
    save_checkpoint,
)
from sureshot.networks.distributed import Processes
from sureshot.networks.divergence import (
    LARGEST_LOSS,
    DivergedError,
    Saved,
    is_about_numbers,
    last_good_checkpoint,
    not_finite,
)
from sureshot.networks.interrupt import noticed
from sureshot.networks.log import LOG_NAME, MetricLog
from sureshot.networks.loop_settings import LoopSettings
from sureshot.networks.seeds import generator_for
from sureshot.networks.state import State, check_same, state_of
from sureshot.networks.trainable import Trainable
from sureshot.persistence import Artifact
from sureshot.progress import Progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """What a run came to."""

    best: Path  # checkpoint
    last: Path  # checkpoint
    log: Path
    units: int  # trained in all
    best_units: int  # trained when the best checkpoint was taken
    scores: dict[str, float]  # of the best checkpoint; empty without validation
    stopped_early: bool
    large_gradients: int  # steps whose gradient was larger than the bound


def train(
    trainee: Trainable,
    settings: LoopSettings,
    folder: Path,  # the run's, made if need be
    group: Processes,  # those that `processes` joined, on whose device the trainee is
    progress: Progress | None = None,  # called after every step
    resume: bool = True,  # from the last checkpoint, if there is one; else start anew and replace what is there
) -> Trained:
    """Train to the end.

    Raises
    ------
    ValueError
        If there are more processes than units in a step, the folder holds a run with other settings, or training
        diverges (`DivergedError`).
    """
    run = Run(trainee, settings, folder, group)
    if group.writes:
        folder.mkdir(parents=True, exist_ok=True)
    # All processes must have looked for a checkpoint before one of them writes any.
    checkpoint = load_checkpoint(run.last, trainee.kind) if resume and run.last.exists() else None
    group.agree(0.0)
    try:
        run.start_from(checkpoint)
        run.run(progress)
    finally:
        run.close()
    state = run.state
    return Trained(
        best=folder / BEST_NAME,
        last=run.last,
        log=folder / LOG_NAME,
        units=state.units,
        best_units=state.best_units,
        scores=state.best,
        stopped_early=state.stopped,
        large_gradients=state.large_gradients,
    )


class Run:
    """One run: what stays the same (trainee, settings) and what moves (the module, its optimiser, the state)."""

    def __init__(self, trainee: Trainable, settings: LoopSettings, folder: Path, group: Processes) -> None:
        if group.count > trainee.units_per_step:
            raise ValueError(
                f"{group.count} processes share {trainee.units_per_step} {trainee.unit} of a step: raise "
                f"training.{trainee.unit}_per_step to at least one for each process"
            )
        self.trainee, self.settings, self.folder, self.group = trainee, settings, folder, group
        self.last = folder / LAST_NAME
        self.module = trainee.module
        self.optimiser = trainee.optimiser()
        self._rates = [group["lr"] for group in self.optimiser.param_groups]
        self.state = State()
        self.log: MetricLog | None = None
        # What is infinite before training is a constant, the bound of a constraint.
        self._constants = frozenset(not_finite(arrays_of(self.module)))
        self._last_units: int | None = None  # trained when the last checkpoint was written

    def start_from(self, checkpoint: Artifact | None) -> None:
        """Take over a checkpoint's state, and open the log at its place; without one, remove those of an older run."""
        state, unit = self.state, self.trainee.unit
        if checkpoint is not None:
            check_same(checkpoint, self.trainee)
            restore(checkpoint, self.module)
            restore_optimiser(checkpoint, self.module, self.optimiser)
            share = self.group.share(self.trainee.units_per_step)
            carried = carried_of(checkpoint, share)
            if carried:
                self.trainee.take_over({name: value.to(self.group.device) for name, value in carried.items()})
            self.state = state = state_of(checkpoint, unit)
            self._last_units = state.units
            complete = state.stopped or state.units >= self.settings.length
            what = "%s is complete after %d %s" if complete else "resuming %s after %d %s"
            logger.info(what, self.folder, state.units, unit)
        if self.group.writes:
            # First what can fail: an older run is replaced only by one that can start.
            self.log = MetricLog(self.folder, unit, state.units, self.settings.tensorboard)
            if checkpoint is None:
                for name in (LAST_NAME, BEST_NAME):
                    (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def run(self, progress: Progress | None) -> None:
        """Train to the end; an interrupt of a single process ends the step and writes a checkpoint first."""
        with noticed() if self.group.count == 1 else nullcontext(lambda: False) as interrupted:
            self._run(progress, interrupted)

    def _run(self, progress: Progress | None, interrupted: Callable[[], bool]) -> None:
        settings, state = self.settings, self.state
        self.module.train()
        while state.units < settings.length and not state.stopped:
            before = state.units
            loss = self._step()
            end = state.units >= settings.length

            def due(every: int, before: int = before, end: bool = end) -> bool:
                return end or state.units // every > before // every

            if due(settings.log_every):
                self._log_window()
            if settings.validate_every and due(settings.validate_every):
                self._validate()
            if due(settings.checkpoint_every) or state.stopped or interrupted():
                self._save()
            if interrupted():
                logger.info(
                    "interrupted after %d %s; training goes on from %s", state.units, self.trainee.unit, self.last
                )
                raise KeyboardInterrupt
            if progress is not None and self.group.writes:
                progress(self._in_words(loss), state.units / settings.length)

    def _step(self) -> float:
        state = self.state
        step = state.units // self.trainee.units_per_step
        self.optimiser.zero_grad(set_to_none=True)
        with self._watched("the loss and its gradient"):
            loss = self.backward(step)
        gradient = _norm(self.module)
        values = torch.stack([self.group.mean(loss), gradient]).tolist()
        for name, value in zip(("loss", "norm of the gradient"), values, strict=True):
            if not math.isfinite(value):
                raise self._diverged(f"the {name} is {value}")
        if values[0] > LARGEST_LOSS:
            raise self._diverged(f"the loss is {values[0]:.2g} nats for each row")
        factor = self.trainee.learning_rate_factor(state.units)
        for group, rate in zip(self.optimiser.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        with self._watched("the step"):
            self.optimiser.step()
        state.units += self.trainee.units_per_step
        state.window_steps += 1
        state.window_loss += values[0]
        state.window_gradient = max(state.window_gradient, values[1])
        if values[1] > self.settings.gradient_bound:
            state.large_gradients += 1
            self._write(
                "warning", message="large gradient", step=step, gradient_norm=values[1], count=state.large_gradients
            )
        return float(values[0])

    def backward(self, step: int) -> Tensor:
        """Compute the gradient of a step, averaged over the processes; the loss of this process's share."""
        group, units = self.group, self.trainee.units_per_step
        noise = generator_for(self.settings.seed, "noise", step, group.rank, device=group.device)
        losses = self.trainee.losses(step, group.share(units), noise)
        # The processes' gradients are averaged with equal weight, but a share may be smaller than another.
        loss: Tensor = losses.sum() * (group.count / units)
        loss.backward()
        group.average_gradients(self.module)
        return loss.detach()

    def _log_window(self) -> None:
        state = self.state
        self._write(
            "training",
            loss=state.window_loss / state.window_steps,
            largest_gradient_norm=state.window_gradient,
            large_gradients=state.large_gradients,
        )
        state.window_steps, state.window_loss, state.window_gradient = 0, 0.0, 0.0

    def _validate(self) -> None:
        state, patience = self.state, self.settings.patience
        self.group.average_buffers(self.module)
        self._require_finite()
        if self.group.writes:
            with self._watched("the scores on validation classes"):
                scores = self.trainee.validate()
            self._require_finite()
            better = scores.better_than(state.best)
            self._write("validation", **scores.values, best=better)
            state.without_better = 0 if better else state.without_better + 1
            if better:
                state.best, state.best_units = dict(scores.values), state.units
                self._write_checkpoint(BEST_NAME, with_optimiser=False)
            state.stopped = patience is not None and state.without_better >= patience
        # Only one process validates; the others need what it fitted, and to know whether to stop.
        self.group.take_buffers(self.module)
        state.stopped = bool(self.group.agree(float(state.stopped)))

    def _save(self) -> None:
        self.group.average_buffers(self.module)
        self._require_finite()
        carried = self.group.gather(self.trainee.carried(), self.trainee.units_per_step)
        if self.log is not None:
            self.log.sync()
            if not self.settings.validate_every:
                self.state.best_units = self.state.units
                self._write_checkpoint(BEST_NAME, with_optimiser=False)
            self._write_checkpoint(LAST_NAME, with_optimiser=True, carried=carried)
        self._last_units = self.state.units

    def _write_checkpoint(self, name: str, with_optimiser: bool, carried: dict[str, Tensor] | None = None) -> None:
        trainee, state = self.trainee, self.state
        save_checkpoint(
            self.folder / name,
            trainee.kind,
            {"config": trainee.config, **trainee.parts},
            self.module,
            state.as_dict(trainee.unit),
            state.best,
            self.optimiser if with_optimiser else None,
            carried,
        )

    def _write(self, kind: str, **values: Any) -> None:
        if self.log is not None:
            self.log.write(kind, self.state.units, **values)

    @contextmanager
    def _watched(self, what: str) -> Iterator[None]:
        """Turn errors of numbers that are not finite into the run's own; mistakes stay what they are."""
        try:
            yield
        except (ValueError, RuntimeError, ArithmeticError) as error:
            if not is_about_numbers(error) and not self._broken():
                raise
            raise self._diverged(f"{what} could not be computed ({error})") from error

    def _require_finite(self) -> None:
        """Stop before something is made of a state that is not finite."""
        broken = self._broken()
        if broken:
            raise self._diverged(f"{broken[0]} is not finite")

    def _broken(self) -> list[str]:
        """What is not finite and should be, of the module and the optimiser."""
        return [name for name in not_finite(arrays_of(self.module, self.optimiser)) if name not in self._constants]

    def _diverged(self, what: str) -> DivergedError:
        state, trainee = self.state, self.trainee
        step = state.units // trainee.units_per_step
        saved = [Saved(self.folder / BEST_NAME, state.best_units)] if state.best_units else []
        if self._last_units is not None:
            saved.append(Saved(self.last, self._last_units))
        return DivergedError(
            f"training of {trainee.name!r} diverged at step {step} (after {state.units} {trainee.unit}): "
            f"{what}; {last_good_checkpoint(saved, state.units, trainee.unit)}; {trainee.advice}"
        )

    def _in_words(self, loss: float) -> str:
        state, unit = self.state, self.trainee.unit.removesuffix("s")
        best = " ".join(f"{name} {value:.3f}" for name, value in state.best.items())
        scores = f", best {best}" if best else ""
        return f"{self.trainee.name} {unit} {state.units}: loss {loss:.3f}{scores}"


def _norm(module: nn.Module) -> Tensor:
    """Euclidean norm of the gradient of all parameters."""
    norms = [p.grad.norm() for p in module.parameters() if p.grad is not None]
    return torch.stack(norms).norm() if norms else torch.zeros((), dtype=torch.float32)
