"""The meta-training loop.

A step draws tasks, averages the learner's losses over them and lets Adam follow the gradient; every so many episodes
the learner is scored on validation classes, the best one is kept, and everything is saved so that a run that was
killed goes on from its last checkpoint to the result that it would have had, to the last bit (on the same machine
with the same number of threads).

A folder holds a run::

    last.safetensors     to resume from: learner, optimiser, counters
    best.safetensors     the learner with the best validation score, for use
    metrics.jsonl        the log

Trouble is reported, not hidden: gradients are never clipped, unusually large ones are counted in the log, and a loss
beyond any use and numbers that are not finite, wherever they come up, end the run with an error that says where. Such
numbers are never saved.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sureshot.data.few_shot import load_few_shot
from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.meta.episodes import EpisodeSampler
from sureshot.meta.tasks import Tasks
from sureshot.meta.training.assembly import build_learner, check_names, make_optimiser
from sureshot.meta.training.checkpoint import (
    BEST_NAME,
    LAST_NAME,
    Checkpoint,
    arrays_of,
    load_checkpoint,
    save_checkpoint,
)
from sureshot.meta.training.config import TrainingConfig
from sureshot.meta.training.distributed import Processes, processes
from sureshot.meta.training.divergence import (
    LARGEST_LOSS,
    DivergedError,
    Saved,
    is_about_numbers,
    not_finite,
    where_to_go_on,
)
from sureshot.meta.training.log import LOG_NAME, MetricLog
from sureshot.meta.training.state import State, check_same, state_of
from sureshot.meta.training.validation import ValidationScores, Validator
from sureshot.networks.seeds import generator_for

logger = logging.getLogger(__name__)

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class TrainingResult:
    """What a run came to."""

    best: Path  # checkpoint
    last: Path  # checkpoint
    log: Path
    episodes: int  # trained in all
    best_episodes: int  # trained when the best checkpoint was taken
    scores: ValidationScores | None  # of the best checkpoint; None without validation
    stopped_early: bool
    large_gradients: int  # steps whose gradient was larger than the bound
    seconds: float  # spent in this call

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        values = dataclasses.asdict(self)
        return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def train(
    config: TrainingConfig,
    output: str | os.PathLike[str],
    data_root: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    resume: bool = True,
    data: FewShotData | None = None,
) -> TrainingResult:
    """Meta-train a learner.

    Parameters
    ----------
    output : path
        The run's folder, made if need be.
    data_root : path, optional
        As in `sureshot.data.data_root`.
    progress : callable, optional
        ``progress(what, fraction)``, called after every step.
    resume : bool
        Go on from the last checkpoint in `output`, if there is one; else start anew and replace what is there.
    data : FewShotData, optional
        Labelled sets to use in place of those that ``config.data`` names.

    Raises
    ------
    ValueError
        If settings and data do not fit, `output` holds a run with other settings, or training diverges
        (`DivergedError`).
    """
    start = time.perf_counter()
    folder = Path(output)
    check_names(config)
    with processes(config.training.device) as group:
        found = load_few_shot(config.data.name, data_root, **config.data.options) if data is None else data
        run = Run(config, folder, found, group)
        if group.writes:
            folder.mkdir(parents=True, exist_ok=True)
        # All processes must have looked for a checkpoint before one of them writes any.
        checkpoint = load_checkpoint(run.last) if resume and run.last.exists() else None
        group.agree(0.0)
        try:
            run.start_from(checkpoint)
            run.go(progress)
        finally:
            run.close()
        state = run.state
        return TrainingResult(
            best=folder / BEST_NAME,
            last=run.last,
            log=folder / LOG_NAME,
            episodes=state.episodes,
            best_episodes=state.best_episodes,
            scores=ValidationScores(**state.best) if state.best else None,
            stopped_early=state.stopped,
            large_gradients=state.large_gradients,
            seconds=time.perf_counter() - start,
        )


class Run:
    """One run: what stays the same (settings, data) and what moves (learner, optimiser, state)."""

    def __init__(self, config: TrainingConfig, folder: Path, data: FewShotData, group: Processes) -> None:
        self.config, self.folder, self.group = config, folder, group
        self.last = folder / LAST_NAME
        if group.count > config.training.episodes_per_step:
            raise ValueError(
                f"{group.count} processes share {config.training.episodes_per_step} episodes of a step: raise "
                "training.episodes_per_step to at least one for each process"
            )
        protocol = config.episodes.to_protocol()
        self.learner = build_learner(config, data.train).to(group.device)
        try:
            self.sampler = EpisodeSampler(_on(data.train, group.device), protocol, self.learner.samples_images)
        except ValueError as error:
            raise ValueError(f"training: {error}") from None
        validates = config.validation.every > 0 and group.writes
        self.validator: Validator | None = None
        if validates:
            validation = _on(data.val, group.device)
            self.validator = Validator(validation, self.sampler.data, protocol, config.validation)
        if data.train.x.dim() == 4:
            self.learner.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimiser = make_optimiser(self.learner, config)
        self.state = State()
        self.log: MetricLog | None = None
        # What is infinite before training is a constant, the bound of a constraint.
        self._constants = frozenset(not_finite(arrays_of(self.learner)))
        self._last_episodes: int | None = None

    def start_from(self, checkpoint: Checkpoint | None) -> None:
        """Take over a checkpoint's state, and open the log at its place; without one, remove those of an older run."""
        if checkpoint is not None:
            check_same(checkpoint, self.config, self.learner.config)
            checkpoint.restore(self.learner)
            checkpoint.restore_optimiser(self.learner, self.optimiser)
            self.state = state_of(checkpoint)
            self._last_episodes = checkpoint.episodes
            complete = self.state.stopped or self.state.episodes >= self.config.training.episodes
            what = "%s is complete after %d episodes" if complete else "resuming %s after %d episodes"
            logger.info(what, self.folder, self.state.episodes)
        if self.group.writes:
            # First what can fail: an older run is replaced only by one that can start.
            self.log = MetricLog(self.folder, self.state.episodes, self.config.training.tensorboard)
            if checkpoint is None:
                for name in (LAST_NAME, BEST_NAME):
                    (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def go(self, progress: Progress | None) -> None:
        """Train to the end."""
        config, state = self.config.training, self.state
        self.learner.train()
        while state.episodes < config.episodes and not state.stopped:
            before = state.episodes
            loss = self._step()
            end = state.episodes >= config.episodes

            def due(every: int, before: int = before, end: bool = end) -> bool:
                return end or state.episodes // every > before // every

            if due(config.log_every):
                self._log_window()
            if self.config.validation.every and due(self.config.validation.every):
                self._validate()
            if due(config.checkpoint_every) or state.stopped:
                self._save()
            if progress is not None and self.group.writes:
                progress(self._in_words(loss), state.episodes / config.episodes)

    def _step(self) -> float:
        config, state, group = self.config.training, self.state, self.group
        step = state.episodes // config.episodes_per_step
        self.optimiser.zero_grad(set_to_none=True)
        with self._watched("the loss and its gradient"):
            loss = self.backward(step)
        gradient = _norm(self.learner)
        values = torch.stack([group.mean(loss), gradient]).tolist()
        for name, value in zip(("loss", "norm of the gradient"), values, strict=True):
            if not math.isfinite(value):
                raise self._diverged(f"the {name} is {value}")
        if values[0] > LARGEST_LOSS:
            raise self._diverged(f"the loss is {values[0]:.2g} nats for each row")
        with self._watched("the step"):
            self.optimiser.step()
        state.episodes += config.episodes_per_step
        state.window_steps += 1
        state.window_loss += values[0]
        state.window_gradient = max(state.window_gradient, values[1])
        if values[1] > config.gradient_bound:
            state.large_gradients += 1
            self._write(
                "warning", message="large gradient", step=step, gradient_norm=values[1], count=state.large_gradients
            )
        return float(values[0])

    def backward(self, step: int) -> Tensor:
        """Compute the gradient of a step, averaged over the processes; the loss of this process's share."""
        config, group = self.config.training, self.group
        noise = generator_for(config.seed, "noise", step, group.rank, device=group.device)
        losses: Tensor = self.learner(self._draw(step), noise)
        # The processes' gradients are averaged with equal weight, but a share may be smaller than another.
        loss: Tensor = losses.sum() * (group.count / config.episodes_per_step)
        loss.backward()
        group.average_gradients(self.learner)
        return loss.detach()

    def _draw(self, step: int) -> Tasks:
        """This process's share of a step's tasks."""
        config = self.config.training
        generator = generator_for(config.seed, "tasks", step)
        if self.learner.samples_images:
            # As many images as the episodes would have, in batches of one episode's size.
            per_episode = self.sampler.protocol.rows_per_task
            rows = self.sampler.draw_images(per_episode, generator, config.episodes_per_step)
        else:
            rows = self.sampler.draw(config.episodes_per_step, generator)
        return self.sampler.gather(rows.select(self.group.share(config.episodes_per_step)))

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
        state, settings = self.state, self.config.validation
        self.group.average_buffers(self.learner)
        self._require_finite()
        if self.validator is not None:
            with self._watched("the scores on validation classes"):
                scores = self.validator(self.learner)
            self._require_finite()
            best = ValidationScores(**state.best) if state.best else None
            better = scores.better_than(best, settings.select_by)
            self._write("validation", accuracy=scores.accuracy, nll=scores.nll, best=better)
            state.without_better = 0 if better else state.without_better + 1
            if better:
                state.best, state.best_episodes = dataclasses.asdict(scores), state.episodes
                self._write_checkpoint(BEST_NAME, with_optimiser=False)
            state.stopped = settings.patience is not None and state.without_better >= settings.patience
        # Only one process validates; the others need what it fitted, and to know whether to stop.
        self.group.take_buffers(self.learner)
        state.stopped = bool(self.group.agree(float(state.stopped)))

    def _save(self) -> None:
        self.group.average_buffers(self.learner)
        self._require_finite()
        if self.log is not None:
            self.log.sync()
            if not self.config.validation.every:
                self.state.best_episodes = self.state.episodes
                self._write_checkpoint(BEST_NAME, with_optimiser=False)
            self._write_checkpoint(LAST_NAME, with_optimiser=True)
        self._last_episodes = self.state.episodes

    def _write_checkpoint(self, name: str, with_optimiser: bool) -> None:
        state = self.state
        save_checkpoint(
            self.folder / name,
            self.learner,
            self.config.as_dict(),
            dataclasses.asdict(state),
            state.best,
            self.optimiser if with_optimiser else None,
        )

    def _write(self, kind: str, **values: Any) -> None:
        if self.log is not None:
            self.log.write(kind, self.state.episodes, **values)

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
        """What is not finite and should be, of the learner and the optimiser."""
        return [name for name in not_finite(arrays_of(self.learner, self.optimiser)) if name not in self._constants]

    def _diverged(self, what: str) -> DivergedError:
        state = self.state
        step = state.episodes // self.config.training.episodes_per_step
        saved = [Saved(self.folder / BEST_NAME, state.best_episodes)] if state.best_episodes else []
        if self._last_episodes is not None:
            saved.append(Saved(self.last, self._last_episodes))
        return DivergedError(
            f"training of {self.config.learner.name!r} diverged at step {step} (after {state.episodes} episodes): "
            f"{what}; {where_to_go_on(saved, state.episodes)}; try a lower learning_rate or learning_rate_kernel, or "
            "float32"
        )

    def _in_words(self, loss: float) -> str:
        best = self.state.best
        scores = f", best accuracy {best['accuracy']:.3f} nll {best['nll']:.3f}" if best else ""
        return f"{self.config.learner.name} episode {self.state.episodes}: loss {loss:.3f}{scores}"


def _on(data: LabelledSet, device: torch.device) -> LabelledSet:
    return data if device.type == "cpu" else LabelledSet(data.x.to(device), data.y, data.class_names)


def _norm(learner: nn.Module) -> Tensor:
    """Euclidean norm of the gradient of all parameters."""
    norms = [p.grad.norm() for p in learner.parameters() if p.grad is not None]
    return torch.stack(norms).norm() if norms else torch.zeros(())
