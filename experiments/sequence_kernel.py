"""A deep kernel on sequences: few-shot classification of random oscillations.

A kernel on what a recurrent network made of a sequence is a kernel on sequences. We show what that gives where the
raw values say little: every class is a stationary process x_t = a x_{t-1} + b x_{t-2} + noise, an oscillation with its
own frequency and damping, and its sequences share no phase. Two sequences of a class are near in what they do, not in
their values. From base classes a network can learn to look at that; a kernel on the values cannot.

Since the classes are known processes, so is the best possible prediction (the true densities, no learning): the
ceiling in the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from sureshot.data.labelled import LabelledSet
from sureshot.meta.episodes import EpisodeProtocol, EpisodeSampler
from sureshot.meta.evaluation import evaluate
from sureshot.meta.evaluation.passes import draw_tasks
from sureshot.meta.learners import Learner, make_learner
from sureshot.networks.backbones import make_backbone
from sureshot.networks.seeds import generator_for


@dataclass(frozen=True)
class Settings:
    """Settings of the comparison.

    Attributes
    ----------
    learner : str
        A Gaussian-process learner.
    length : int
        Of the sequences.
    n_base, n_novel, n_rows : int
        Classes to meta-train on and to test on, and sequences of each.
    way, shots, queries : int
        Of the tasks, in training and in tests.
    n_steps, tasks_per_step : int
        Steps of Adam.
    learning_rate : float
    n_test_tasks : int
    seeds : tuple of int
        Of processes, sequences, weights and tasks.
    """

    learner: str = "cdkt_pl"
    length: int = 32
    n_base: int = 64
    n_novel: int = 40
    n_rows: int = 60
    way: int = 5
    shots: int = 5
    queries: int = 10
    n_steps: int = 300
    tasks_per_step: int = 4
    learning_rate: float = 3e-3
    n_test_tasks: int = 500
    seeds: tuple[int, ...] = (0, 1, 2)


RAW, NETWORK, RECURRENT = "values, RBF kernel", "MLP, cosine kernel", "LSTM, cosine kernel"
CEILING = "the true processes"

_METHODS: Mapping[str, tuple[str, str]] = {
    RAW: ("identity", "rbf"),
    "values, cosine kernel": ("identity", "cosine"),
    NETWORK: ("mlp", "cosine"),
    RECURRENT: ("lstm", "cosine"),
}


@dataclass(frozen=True)
class Processes:
    """K stationary second-order autoregressive processes of variance 1.

    Attributes
    ----------
    first, second : Tensor (K,)
        Coefficients of the last value and of the one before.
    """

    first: Tensor
    second: Tensor

    @property
    def correlation(self) -> Tensor:
        """Of neighbouring values, (K,)."""
        return self.first / (1 - self.second)

    @property
    def noise(self) -> Tensor:
        """Standard deviation of the noise that makes the variance 1, (K,)."""
        after_two = self.first * self.correlation + self.second
        return (1 - self.first * self.correlation - self.second * after_two).sqrt()

    def sample(self, n_rows: int, length: int, generator: torch.Generator) -> Tensor:
        """Sequences (K, n_rows, length), stationary from the first value on."""
        noise = torch.randn(len(self.first), n_rows, length, generator=generator, dtype=self.first.dtype)
        first, second = self.first.unsqueeze(-1), self.second.unsqueeze(-1)
        correlation, scale = self.correlation.unsqueeze(-1), self.noise.unsqueeze(-1)
        values = [noise[..., 0], correlation * noise[..., 0] + (1 - correlation.square()).sqrt() * noise[..., 1]]
        for step in range(2, length):
            values.append(first * values[-1] + second * values[-2] + scale * noise[..., step])
        return torch.stack(values, -1)

    def log_density(self, x: Tensor) -> Tensor:
        """Log density of sequences (N, length) under each process, (N, K)."""
        x = x.unsqueeze(1)  # (N, 1, length)
        start = -0.5 * x[..., 0].square()
        spread = (1 - self.correlation.square()).sqrt()
        second = (x[..., 1] - self.correlation * x[..., 0]) / spread
        expected = self.first.unsqueeze(-1) * x[..., 1:-1] + self.second.unsqueeze(-1) * x[..., :-2]
        rest = (x[..., 2:] - expected) / self.noise.unsqueeze(-1)
        steps = rest.shape[-1]
        return (
            start
            - 0.5 * (second.square() + rest.square().sum(-1))
            - spread.log()
            - steps * self.noise.log()
            - 0.5 * (steps + 2) * math.log(2 * math.pi)
        )


def draw_processes(n_classes: int, generator: torch.Generator) -> Processes:
    """Oscillations of angular frequency 0.3 to 2.8 for a step, damped by a factor of 0.83 to 0.98 for a step."""
    uniform = torch.rand(2, n_classes, generator=generator, dtype=torch.float64)
    frequency, damping = 0.3 + 2.5 * uniform[0], 0.83 + 0.15 * uniform[1]
    return Processes(2 * damping * frequency.cos(), -damping.square())


def labelled(processes: Processes, n_rows: int, length: int, generator: torch.Generator) -> LabelledSet:
    """`n_rows` sequences (length, 1) of each process."""
    n_classes = len(processes.first)
    x = processes.sample(n_rows, length, generator).float().reshape(-1, length, 1)
    return LabelledSet(
        x, torch.arange(n_classes).repeat_interleave(n_rows), tuple(f"process {k}" for k in range(n_classes))
    )


def meta_train(learner: Learner, sampler: EpisodeSampler, settings: Settings, seed: int) -> None:
    """Adam on the mean loss of fresh tasks, in place; the learner is left in evaluation mode."""
    optimiser = torch.optim.Adam(learner.parameters(), settings.learning_rate)
    learner.train()
    for step in range(settings.n_steps):
        tasks = sampler.sample(settings.tasks_per_step, generator_for(seed, "training tasks", step))
        optimiser.zero_grad()
        learner(tasks, generator_for(seed, "learner", step)).mean().backward()
        optimiser.step()
    learner.eval()


def true_density_scores(
    processes: Processes, data: LabelledSet, protocol: EpisodeProtocol, n_tasks: int, seed: int
) -> dict[str, float]:
    """Accuracy and NLL of the true densities, on the tasks that `evaluate` draws."""
    sampler = EpisodeSampler(data, protocol)
    log_density = processes.log_density(data.x.squeeze(-1).double())  # (N, K)
    tasks = sampler.gather(draw_tasks(sampler, n_tasks, generator_for(seed, "tasks")), log_density)
    assert tasks.class_ids is not None
    classes = tasks.class_ids.unsqueeze(1).expand(-1, tasks.query_y.shape[1], -1)
    log_probability = tasks.query_x.gather(-1, classes).log_softmax(-1)  # (T, Q, C)
    hits = log_probability.argmax(-1) == tasks.query_y
    nll = -log_probability.gather(-1, tasks.query_y.unsqueeze(-1))
    return {"accuracy": 100 * hits.double().mean().item(), "nll": nll.mean().item()}


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `Settings` for the options."""
    settings = configure(Settings, options)
    protocol = EpisodeProtocol(settings.way, settings.shots, settings.queries)
    records: list[dict[str, Any]] = []
    for number, seed in enumerate(settings.seeds):
        generator = generator_for(seed, "sequences")
        base = labelled(draw_processes(settings.n_base, generator), settings.n_rows, settings.length, generator)
        novel_processes = draw_processes(settings.n_novel, generator)
        novel = labelled(novel_processes, settings.n_rows, settings.length, generator)
        sampler = EpisodeSampler(base, protocol)
        for place, (method, (backbone, kernel)) in enumerate(_METHODS.items()):
            progress(f"seed {seed}: {method}", (number + place / len(_METHODS)) / len(settings.seeds))
            network = make_backbone(
                backbone, (settings.length, 1), **({} if backbone == "identity" else {"seed": seed})
            )
            learner = make_learner(settings.learner, network, kernel=kernel, tasks_per_pass=settings.tasks_per_step)
            meta_train(learner, sampler, settings, seed)
            found = evaluate(
                learner,
                novel,
                protocol,
                n_tasks=settings.n_test_tasks,
                seed=seed,
                out_of_episode=0,
                robustness=0,
                timing=False,
            )
            scores = found.calibration["none"]
            records.append(
                {
                    "method": method,
                    "seed": seed,
                    "accuracy": 100 * found.accuracy.over_episodes.mean,
                    "nll": scores.nll.mean,
                    "ece": scores.ece.mean,
                }
            )
        best = true_density_scores(novel_processes, novel, protocol, settings.n_test_tasks, seed)
        records.append({"method": CEILING, "seed": seed, **best})
    frame = pd.DataFrame(records)
    means = frame.groupby("method", sort=False)[["accuracy", "nll", "ece"]].mean()
    by_seed = frame.pivot(index="seed", columns="method", values="accuracy")
    gain = by_seed[RECURRENT] - by_seed[RAW]
    order = by_seed[RECURRENT] - by_seed[NETWORK]
    nll_by_seed = frame.pivot(index="seed", columns="method", values="nll")
    likelihood = nll_by_seed[RECURRENT] - nll_by_seed[NETWORK]
    return Outcome(
        title="A deep kernel on sequences",
        introduction=(
            f"{settings.way}-way {settings.shots}-shot classification of sequences of {settings.length} values. Every "
            "class is a random oscillation (a second-order autoregressive process) with its own frequency and damping "
            f"and no common phase; {settings.n_base} base classes for meta-training, {settings.n_novel} others for "
            f"{settings.n_test_tasks} test tasks. The learner is always `{settings.learner}`, meta-trained by "
            f"{settings.n_steps} steps of {settings.tasks_per_step} tasks; only what its kernel sees differs: the "
            "values, a multilayer perceptron's features of them, or an LSTM's states averaged over time. The last row "
            "knows the true processes and learns nothing: no method can do better."
        ),
        tables=(
            Table(
                "scores",
                "Accuracy in percent, negative log-likelihood in nats, expected calibration error; means over seeds.",
                means.reset_index(),
            ),
            Table("seeds", "The same for each seed.", frame, on_page=False),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(
            f"Accuracy rises from {means.accuracy[RAW]:.1f} % on the values to {means.accuracy[RECURRENT]:.1f} % with "
            f"the recurrent encoder; the true processes reach {means.accuracy[CEILING]:.1f} %.",
            f"The recurrent encoder against a network that treats the {settings.length} values as a vector: "
            f"{order.mean():+.1f} points of accuracy ({order.min():+.1f} to {order.max():+.1f} over seeds), "
            f"{likelihood.mean():+.3f} nats of negative log-likelihood ({likelihood.min():+.3f} to "
            f"{likelihood.max():+.3f}). All sequences have one length here, so the vector holds all there is to know.",
        ),
        verdicts=(
            Verdict(
                "A Gaussian process on a recurrent network's features classifies sequences that one on their values "
                "cannot.",
                "lecture on Gaussian processes and meta-learning, deep kernels",
                f"{gain.mean():.1f} points more accurate than on the values (least over seeds {gain.min():.1f})",
                bool(gain.min() > 0),
            ),
        ),
    )


EXPERIMENT = Experiment(
    "sequence-kernel", "a Gaussian process on an LSTM's features, few-shot on sequences", False, run
)
