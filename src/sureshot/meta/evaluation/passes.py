"""From a labelled set to predictions: embed every row once, draw tasks as row numbers, adapt them batch by batch.

Tasks are drawn as row numbers from a stream of their own: they depend on the seed alone, not on the learner, its
device, or how many tasks are adapted at a time, and the first tasks of a long evaluation are the tasks of a short one.
That makes comparisons paired. They are looked up in what the learner adapts to (`task_inputs`): embeddings of all rows,
which in evaluation mode do not depend on the task, or inputs where the learner has no such embeddings.

Learners that sample draw from another stream, batch after batch; their predictions, within Monte-Carlo noise only,
depend on the batch size too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sureshot.meta.episodes import EpisodeProtocol, EpisodeSampler
from sureshot.meta.learners.base import ClassLearner, TaskPosterior, evaluating
from sureshot.meta.learners.embedding import ROWS_PER_PASS, EmbeddingLearner
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import as_inputs
from sureshot.networks.seeds import generator_for

_TASKS_PER_DRAW = 250  # bounds the sampler's memory; constant, so that the first tasks are the same for any number
_VALUES_PER_PASS = 4_000_000  # of latents' covariances over classes, before the learner's chains
_MOST_TASKS = 100


Change = Callable[[Tensor], Tensor]
"""Applied to inputs (floats, images in [0, 1]) before a learner sees them, such as noise."""


def task_inputs(
    learner: ClassLearner,
    x: Tensor,  # (N, ...), inputs as a labelled set has them: bytes or floats
    change: Change | None = None,
) -> Tensor:
    """What tasks are looked up in: embeddings (N, D) where they can be computed ahead, else inputs (N, ...)."""
    if isinstance(learner, EmbeddingLearner):
        return embed_set(learner, x, change)
    return x if change is None else torch.cat([change(as_inputs(rows)) for rows in x.split(ROWS_PER_PASS)])


def embed_set(learner: EmbeddingLearner, x: Tensor, change: Change | None = None) -> Tensor:
    """Embeddings (N, D) of inputs (N, ...), on the CPU; `change` applies to one pass after another."""
    parts = []
    with evaluating(learner):
        for rows in x.split(ROWS_PER_PASS):
            inputs = as_inputs(rows)
            if change is not None:
                inputs = change(inputs)
            parts.append(learner.embed(inputs.to(learner.device).unsqueeze(0))[0].cpu())
    embedded = torch.cat(parts)
    broken = ~torch.isfinite(embedded).all(1)
    if bool(broken.any()):
        raise ValueError(
            f"the embedding of {int(broken.sum())} of {len(x)} inputs (the first is row {int(broken.nonzero()[0])}) is "
            "not finite: has the training diverged, or are the inputs far out of range?"
        )
    return embedded


def draw_tasks(
    sampler: EpisodeSampler, n_tasks: int, generator: torch.Generator, out_of_episode: bool = False
) -> Tasks:
    """So many tasks, of row numbers; those of a smaller number are the first of them."""
    parts = [
        sampler.draw(_TASKS_PER_DRAW, generator, out_of_episode=out_of_episode)
        for _ in range(-(-n_tasks // _TASKS_PER_DRAW))
    ]
    return Tasks.joined(parts).select(slice(n_tasks))


def queries_per_pass(n_classes: int) -> int:
    """Queries, of all tasks together, to be predicted at a time."""
    return max(1, _VALUES_PER_PASS // n_classes**2)


def default_batch_size(protocol: EpisodeProtocol) -> int:
    """Tasks to adapt at a time, so that memory stays bounded whatever the way.

    Gaussian processes hold a matrix over support rows for every class, and a matrix over classes for every query.
    At most 100 tasks; one task of 75 ways.
    """
    way, support = protocol.ways[1], protocol.ways[1] * protocol.shot_range[1]
    queries = way * protocol.query_range[1]
    return min(max(_VALUES_PER_PASS // (way * support**2 + way**2 * queries), 1), _MOST_TASKS)


@dataclass(frozen=True)
class Adapted:
    """Predictions for one batch of tasks."""

    tasks: Tasks  # as they were looked up
    probabilities: NDArray[np.float64]  # (T, Q, C)
    mean: NDArray[np.float64] | None = None  # (T, Q, C), of the latents, where asked for
    variance: NDArray[np.float64] | None = None  # (T, Q, C)
    outlier: NDArray[np.float64] | None = None  # (T, Q), the learner's own outlier score, where asked for

    @property
    def query_mask(self) -> NDArray[np.bool_]:
        """False for padded queries, (T, Q)."""
        return self.tasks.query.real.cpu().numpy()

    @property
    def class_mask(self) -> NDArray[np.bool_] | None:
        """False for classes that a task lacks, (T, C)."""
        return None if self.tasks.class_mask is None else self.tasks.class_mask.cpu().numpy()

    @property
    def query_y(self) -> NDArray[np.int64]:
        """True classes, (T, Q); -1 for queries of no class of the task."""
        return self.tasks.query_y.cpu().numpy()


@dataclass(frozen=True)
class Exam:
    """Tasks of one protocol, drawn once, that any number of learners are asked."""

    sampler: EpisodeSampler
    rows: Tasks  # of row numbers
    batch_size: int  # tasks adapted at a time

    @classmethod
    def draw(
        cls,
        sampler: EpisodeSampler,
        n_tasks: int,
        seed: int,
        purpose: str = "tasks",  # tasks of different purposes are independent
        *,
        batch_size: int | None = None,  # by default so many that memory stays bounded
        out_of_episode: bool = False,  # with queries of other classes, see `EpisodeSampler.draw`
    ) -> Exam:
        """So many tasks, which the seed and the purpose determine."""
        rows = draw_tasks(sampler, n_tasks, generator_for(seed, purpose), out_of_episode)
        return cls(sampler, rows, default_batch_size(sampler.protocol) if batch_size is None else batch_size)

    def first(self, n_tasks: int) -> Exam:
        """Its first tasks."""
        return replace(self, rows=self.rows.select(slice(n_tasks)))

    def adapt(
        self,
        learner: ClassLearner,
        inputs: Tensor,  # (N, ...), what `task_inputs` gives
        generator: torch.Generator,  # on the learner's device
        query_inputs: Tensor | None = None,  # (N, ...), if other than those of the support
        with_latents: bool = False,
    ) -> Iterator[Adapted]:
        """Condition and predict all tasks, a batch at a time."""
        for start in range(0, len(self.rows), self.batch_size):
            chosen = self.rows.select(slice(start, start + self.batch_size))
            tasks = self.sampler.gather(chosen, inputs, query_inputs).to(learner.device)
            with evaluating(learner):
                posterior = condition(learner, tasks, generator)
                probabilities = in_parts(posterior, tasks, "probabilities")
                latents = in_parts(posterior, tasks, "latents") if with_latents else (None, None, None)
            yield Adapted(tasks, probabilities[0], *latents)

    def answers(
        self, learner: ClassLearner, inputs: Tensor, generator: torch.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Class probabilities (n, C) of the queries of all tasks, and their true classes (n,); without padding."""
        probabilities, y = [], []
        for batch in self.adapt(learner, inputs, generator):
            probabilities.append(batch.probabilities[batch.query_mask])
            y.append(batch.query_y[batch.query_mask])
        return np.concatenate(probabilities), np.concatenate(y)


def condition(learner: ClassLearner, tasks: Tasks, generator: torch.Generator) -> TaskPosterior:
    """The learner adapted to the support sets of tasks that were looked up in `task_inputs`."""
    if isinstance(learner, EmbeddingLearner):
        return learner.condition_embedded(tasks.support, generator)
    return learner.condition(*tasks.support, generator)


def in_parts(
    posterior: TaskPosterior, tasks: Tasks, what: Literal["probabilities", "latents"]
) -> tuple[NDArray[np.float64], ...]:
    """With bounded memory: probabilities (T, Q, C); or moments of the latents, (T, Q, C), and outlier scores (T, Q)."""
    per_task = max(1, queries_per_pass(tasks.n_classes) // len(tasks))
    parts: list[tuple[Tensor, ...]] = []
    for query in tasks.query_x.split(per_task, dim=1):
        if what == "probabilities":
            parts.append((posterior.predict(query),))
        else:
            latents = posterior.latents(query)
            parts.append((latents.mean, latents.variance, posterior.outlier_score(query)))
    return tuple(torch.cat(columns, dim=1).double().cpu().numpy() for columns in zip(*parts, strict=True))
