"""Learners that change all of their network for each task, by gradient steps from a start that is meta-learned.

Derived classes say what is adapted (`start`): the parts of a network or, of some parts, Gaussians, of which several
draws answer, their probabilities averaged. And they say what counts beside the labels (`penalty`). The inner loop
descends the mean cross-entropy of the support, of as many tasks at once as a device has room for.

**The last layer.** By default it starts at zero for every class. Its first step then moves the rows of the classes
apart, which is what a learnt start of one row for all classes would do (a softmax does not see what its rows share),
and tasks may have any number of classes in any order. With ``way`` each of so many classes has a learnt start of its
own, as published; the numbering of the classes then matters, and tasks of another number are refused.

**Batch normalisation.** Statistics are those of the rows at hand, in training and in use (`batch_statistics`): of the
support in the inner loop. With ``query_statistics="query"``, as in the papers' code (Chen et al. 2019), queries are
normalised by their own statistics, so that an answer depends on the other queries of the task. With ``"support"`` the
support passes the adapted network beside the queries and alone counts: a query has the same answer in any company.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from sureshot.meta.gradient.batch_statistics import counting, with_batch_statistics
from sureshot.meta.gradient.inner_loop import Descent, Parameters, adapt, check_answers, check_way
from sureshot.meta.learners.base import ClassLearner, DrawsPosterior, check_query, mean_over_rows
from sureshot.meta.tasks import TaskRows, Tasks
from sureshot.networks.backbones.base import Backbone, describe
from sureshot.networks.backbones.initialisation import dense, he_normal
from sureshot.networks.precision import Precision, check_precision
from sureshot.ranges import check_counts

QueryStatistics = Literal["support", "query"]

SPREAD = "log_deviation."
"""Begins the name of a part's log deviations, if it is a Gaussian."""

_ABSENT = -1e9
"""The logit of an absent class in a loss: finite, so that the weight zero of padding leaves nothing of it."""

_ROWS_AT_ONCE = {"cpu": 128}
"""Over tasks and draws: a processor asks the system for large blocks anew each time; elsewhere 4096 bound a pass."""


class Rows(NamedTuple):
    """Labelled rows of T tasks, or of one, where the leading dimension is missing."""

    x: Tensor  # (T, N, ...), zero for padding
    y: Tensor  # (T, N)
    real: Tensor  # (T, N), False for padding
    present: Tensor  # (T, C)

    @classmethod
    def of(cls, rows: TaskRows) -> Rows:
        """The same, with all masks."""
        real, present = rows.real, rows.class_mask
        if present is None:
            present = real.new_ones(len(real), rows.n_classes)
        return cls(rows.without_padding(), rows.y, real, present)

    def surprise(self, logits: Tensor) -> Tensor:
        """Minus log probability of the labels of one task, (), averaged over rows and draws, by logits (M, N, C)."""
        log_probabilities = logits.masked_fill(~self.present, _ABSENT).log_softmax(-1)
        index = self.y.unsqueeze(-1).expand(*logits.shape[:-1], 1)
        return -mean_over_rows(log_probabilities.gather(-1, index).squeeze(-1), self.real).mean()


@dataclass(frozen=True)
class AdaptedPosterior(DrawsPosterior):
    """A network for each task and draw, at inputs (T, Q, ...)."""

    learner: GradientLearner  # gives the architecture; its parameters are not read
    networks: Parameters  # (T, M, ...)
    support: Rows

    def logits(self, query: Tensor) -> Tensor:
        check_query(query, len(self.support.y))
        known = self.support.x
        if query.shape[2:] != known.shape[2:] or query.dtype != known.dtype:
            like, came = (f"{describe(tuple(part.shape[2:]))} in {part.dtype}" for part in (known, query))
            raise ValueError(f"query_x must be like the support, {like}, got {came}")
        draws = next(iter(self.networks.values())).shape[1]
        rows = draws * (query.shape[1] + self.support.y.shape[1])
        own = copy.deepcopy(self.learner)  # a pass puts its parameters into the modules, and threads may ask at once
        with torch.no_grad():
            of_tasks = vmap(own.query_logits, chunk_size=tasks_at_once(rows, query.device))
            real = torch.ones(query.shape[:2], dtype=torch.bool, device=query.device)
            logits: Tensor = of_tasks(self.networks, self.support, query, real)
        check_answers(logits, own.name)
        absent = ~self.support.present[:, None, None, :]
        return logits.masked_fill(absent, -torch.inf) if bool(absent.any()) else logits


def tasks_at_once(rows: int, device: torch.device) -> int:
    """Tasks of so many rows for one pass."""
    return max(1, _ROWS_AT_ONCE.get(device.type, 4096) // max(1, rows))


def gaussians(parameters: Parameters) -> list[str]:
    """Names of the parts that have deviations."""
    return [name.removeprefix(SPREAD) for name in parameters if name.startswith(SPREAD)]


class GradientLearner(ClassLearner):
    """A learner whose network is another one for each task."""

    name: ClassVar[str]

    draws = 1
    """Networks whose probabilities are averaged."""

    def __init__(
        self,
        backbone: Backbone,
        descent: Descent,
        descent_in_use: Descent,
        way: int | None,
        query_statistics: QueryStatistics,
        precision: Precision,
        seed: int,  # of the last layer's start, with `way`
    ) -> None:
        super().__init__()
        check_precision(precision)
        check_counts(2, way=way)
        if any(isinstance(part, nn.RNNBase) for part in backbone.modules()):
            raise ValueError(
                f"{self.name} adapts its network by torch.func, which does not know the recurrent layers of backbone "
                f"{backbone.config['name']!r}: take another one, or bayesian_maml, which adapts a last layer"
            )
        self.backbone: nn.Module = with_batch_statistics(backbone)
        self.n_features = backbone.n_features
        self.descent, self.descent_in_use = descent, descent_in_use
        self.way = way
        self.transductive = query_statistics == "query"
        self.precision: Precision = precision
        if way is not None:
            self.last = dense(he_normal(way, self.n_features, torch.Generator().manual_seed(seed)))

    @property
    def network(self) -> nn.Module:
        """The backbone."""
        return self.backbone

    @abstractmethod
    def start(self, n_classes: int) -> Parameters:
        """What the inner loop changes, from where every task starts: `network_start`, and log deviations (`SPREAD`)."""

    @abstractmethod
    def penalty(self, start: Parameters, parameters: Parameters, inner: bool) -> Tensor | float:
        """What counts against parameters of a task beside its labels, in an inner step or in meta-training."""

    def network_start(self, n_classes: int) -> Parameters:
        """Backbone and last layer at the start."""
        check_way(self.name, self.way, n_classes)
        found = {f"backbone.{name}": value for name, value in self.backbone.named_parameters()}
        if self.way is not None:
            return found | {"matrix": self.last.weight, "vector": self.last.bias}
        some = next(self.parameters(), None)
        if some is None:
            raise ValueError(f"{self.name} has no weights to adapt: take another backbone, or the option way")
        zeros = some.new_zeros(n_classes, self.n_features + 1)
        return found | {"matrix": zeros[:, 1:], "vector": zeros[:, 0]}

    def noise(self, start: Parameters, steps: int, generator: torch.Generator) -> list[Parameters]:
        """Standard normal numbers (M, ...) for every Gaussian, in all steps and, last, for the answers of all tasks."""

        def drawn(like: Tensor) -> Tensor:
            shape = (self.draws, *like.shape)
            return torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)

        return [{name: drawn(start[name]) for name in gaussians(start)} for _ in range(steps + 1)]

    def networks(self, parameters: Parameters, noise: Parameters) -> Parameters:
        """Draws (M, ...) of the network of one task; what has no deviation is the same in all."""
        found = {}
        for name, mean in parameters.items():
            if name in noise:
                found[name] = mean + parameters[SPREAD + name].exp() * noise[name]
            elif not name.startswith(SPREAD):
                found[name] = mean.expand(self.draws, *mean.shape)
        return found

    def logits(self, network: Parameters, x: Tensor, counts: Tensor) -> Tensor:
        """Of one task's rows (N, ...) by one network, (N, C); `counts` (N,) says which do in batch statistics."""
        inner = {name.removeprefix("backbone."): part for name, part in network.items() if name.startswith("backbone.")}
        rough = torch.autocast(x.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")
        share = counts.to(torch.promote_types(x.dtype, torch.float32))  # of inputs a network refuses, it says why
        # Attention in one pass has no second derivatives in torch.
        with counting(self.backbone, share), rough, sdpa_kernel(SDPBackend.MATH):
            features: Tensor = functional_call(self.backbone, inner, (x,))
        return features.to(x.dtype) @ network["matrix"].mT + network["vector"]

    def query_logits(self, networks: Parameters, support: Rows, query: Tensor, real: Tensor) -> Tensor:
        """Of one task's queries (Q, ...), of which some are `real` (Q,), by its networks, (M, Q, C)."""
        if self.transductive:
            return vmap(lambda network: self.logits(network, query, real))(networks)
        both, counts = torch.cat([support.x, query]), torch.cat([support.real, torch.zeros_like(real)])
        return vmap(lambda network: self.logits(network, both, counts)[len(support.y) :])(networks)

    def input_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Minus log probability of the queries' classes, averaged over queries and draws, and the penalty; (T,)."""
        start = self.start(tasks.n_classes)
        noise = self.noise(start, self.descent.steps, generator)
        support, queries = Rows.of(tasks.support), Rows.of(tasks.query)
        rows = self.draws * (support.y.shape[1] + queries.y.shape[1])
        at_once = tasks_at_once(rows, support.x.device)

        def one(parameters: Parameters, support: Rows, queries: Rows) -> Tensor:
            networks = self.networks(parameters, noise[-1])
            logits = self.query_logits(networks, support, queries.x, queries.real)
            return queries.surprise(logits) + self.penalty(start, parameters, inner=False)

        adapted = self._adapted(start, support, noise, self.descent, at_once)
        losses: Tensor = vmap(one, chunk_size=at_once)(adapted, support, queries)
        check_answers(losses.unsqueeze(1), self.name)
        return losses

    def condition_inputs(self, support: TaskRows, generator: torch.Generator) -> AdaptedPosterior:
        own = copy.deepcopy(self)
        start = own.start(support.n_classes)
        noise = self.noise(start, self.descent_in_use.steps, generator)
        rows = Rows.of(support)
        at_once = tasks_at_once(self.draws * rows.y.shape[1], rows.y.device)
        found = own._adapted(start, rows, noise, self.descent_in_use, at_once)
        return AdaptedPosterior(own, vmap(lambda adapted: self.networks(adapted, noise[-1]))(found), rows)

    def _adapted(
        self, start: Parameters, support: Rows, noise: list[Parameters], descent: Descent, at_once: int | None = None
    ) -> Parameters:
        def loss(parameters: Parameters, step: int, rows: Rows) -> Tensor:
            networks = self.networks(parameters, noise[step])
            logits = vmap(lambda network: self.logits(network, rows.x, rows.real))(networks)
            return rows.surprise(logits) + self.penalty(start, parameters, inner=True)

        return adapt(start, loss, support, descent, self.name, at_once)
