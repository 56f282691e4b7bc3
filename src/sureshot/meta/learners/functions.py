"""What every few-shot learner of numbers offers.

``learner(tasks)`` gives one loss for each task; ``learner.condition(context_x, context_y, mask)`` a frozen posterior,
whose answers are mixtures of normals: one for most learners, one for each draw of a latent or each kernel for others.
Without context it is the prior, and says so (`FunctionPosterior.is_prior`).

A learner writes two functions, `encode` of a context and `answer` of what that gave, and its loss, if that is not the
density of queries. Training, validation and evaluation know nothing else of it.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from sureshot.meta.learners.base import Learner, mean_over_rows, require_finite, seeded
from sureshot.meta.tasks import TaskRows, Tasks


class Moments(NamedTuple):
    """Mixtures of M normals, independent over the targets K of a row given the component."""

    mean: Tensor  # (M, T, Q, K)
    deviation: Tensor  # (M, T, Q, K)
    log_weight: Tensor | None = None  # (M, T), of the components; they are equally likely by default

    @property
    def weight(self) -> Tensor:
        """Of the components, (M, T, 1, 1); sums to 1 over them."""
        shape = (*self.mean.shape[:2], 1, 1)
        if self.log_weight is None:
            return self.mean.new_full(shape, 1 / len(self.mean))
        return self.log_weight.exp().view(shape)

    def double(self) -> Moments:
        """The same in double precision."""
        weight = None if self.log_weight is None else self.log_weight.double()
        return Moments(self.mean.double(), self.deviation.double(), weight)

    def log_density(self, y: Tensor) -> Tensor:
        """Of rows by themselves, (T, Q), in nats; y (T, Q, K)."""
        parts = Normal(self.mean, self.deviation, validate_args=False).log_prob(y)
        share = -math.log(len(parts)) if self.log_weight is None else self.log_weight.unsqueeze(-1)
        return torch.logsumexp(parts.sum(-1) + share, 0)

    def overall(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the mixtures, (T, Q, K)."""
        weight = self.weight
        mean = (weight * self.mean).sum(0)
        return mean, (weight * (self.deviation.square() + (self.mean - mean).square())).sum(0).sqrt()


class Context(NamedTuple):
    """Rows of T functions that are known, zeros for padding, at least one row that may be padding."""

    x: Tensor  # (T, S, D)
    y: Tensor  # (T, S, K)
    mask: Tensor  # (T, S)

    @classmethod
    def of(cls, rows: TaskRows) -> Context:
        """Of rows, whatever padding holds."""
        x, y, known = rows.x, rows.y, rows.real
        if y.shape[1] == 0:
            x, y, known = (part.new_zeros(len(part), 1, *part.shape[2:]) for part in (x, y, known))
        padding = ~known.unsqueeze(-1)
        return cls(x.masked_fill(padding, 0.0), y.masked_fill(padding, 0.0), known)


@dataclass(frozen=True)
class FunctionPosterior:
    """What is known of T functions given their contexts."""

    n_context: Tensor  # (T,), rows
    input_width: int  # D
    answer: Callable[[Tensor], Moments]  # at inputs (T, Q, D), those of a row whatever is beside it
    left_out: Callable[[], Moments | None] = lambda: None  # of each row of the contexts; see `RegressionLearner`

    def moments(self, query: Tensor) -> Moments:
        """The answers at inputs (T, Q, D), noise included."""
        n_tasks, width = len(self.n_context), self.input_width
        if query.dim() != 3 or len(query) != n_tasks or query.shape[-1] != width:
            raise ValueError(f"query must be ({n_tasks}, rows, {width}), got {tuple(query.shape)}")
        require_finite("query", query, None)
        return self.answer(query)

    @property
    def is_prior(self) -> Tensor:
        """Which of the tasks had no context, (T,): their answers are what the learner says of any function."""
        return self.n_context == 0

    def predict(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, (T, Q, K)."""
        return self.moments(query).overall()

    def log_density(self, query: Tensor, y: Tensor) -> Tensor:
        """Of the targets of single rows, (T, Q), in nats."""
        found = self.moments(query)
        if y.shape != found.mean.shape[1:]:
            raise ValueError(f"y must be (T, Q, K), here {tuple(found.mean.shape[1:])}, got {tuple(y.shape)}")
        return found.log_density(y)


class AdaptsToFunctions(Protocol):
    """What evaluation asks of a method: learners, and others that are not learnt."""

    def adapt(self, tasks: Tasks) -> FunctionPosterior:
        """The posterior given the support sets."""


class RegressionLearner(Learner):
    """A learner of numbers, made by ``(input_width, target_width, seed=, **options)``.

    Derived classes state a ``name`` and write `encode` and `answer`.
    """

    name: ClassVar[str]

    numbers_of_pairs = 1
    """That are held for any two rows of a context, about."""

    in_double = False
    """Whether single precision would lose what contexts say, so that answers are in double, whatever the inputs are."""

    def __init__(self, input_width: int, target_width: int) -> None:
        super().__init__()
        self.input_width, self.target_width = input_width, target_width

    @property
    def network(self) -> nn.Module | None:
        return None

    @abstractmethod
    def encode(self, context: Context, generator: torch.Generator) -> Any:
        """What contexts say, in any form that `answer` takes; no batch statistics, so that tasks stay apart."""

    @abstractmethod
    def answer(self, encoded: Any, query: Tensor) -> Moments:
        """At inputs (T, Q, D)."""

    def input_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Mean negative log density of the queries, (T,), given the support, unless a learner has another loss."""
        context, query = Context.of(tasks.support), Context.of(tasks.query)
        density = self.answer(self.encode(context, generator), query.x).log_density(query.y)
        return -mean_over_rows(density, query.mask)

    def check_tasks(self, tasks: Tasks) -> None:
        self._check("support", tasks.support_x, tasks.support_y, tasks.support_mask)
        self._check("query", tasks.query_x, tasks.query_y, tasks.query_mask)

    def condition(
        self,
        context_x: Tensor,  # (T, S, D); S may be 0
        context_y: Tensor,  # (T, S, K)
        mask: Tensor | None = None,  # (T, S), False for padding
        generator: torch.Generator | None = None,  # for learners that sample; a fixed seed without it
    ) -> FunctionPosterior:
        """Adapt to contexts; a ValueError if shapes do not fit, or a number is not finite."""
        self._check("context", context_x, context_y, mask)
        require_finite("context_x", context_x, mask)
        context = Context.of(TaskRows(context_x, context_y, 0, mask))
        own = copy.deepcopy(self).eval().requires_grad_(False)
        if self.in_double:
            own, context = own.double(), context._replace(x=context.x.double(), y=context.y.double())
        encoded = own.encode(context, generator or seeded(context_y.device))
        answers = partial(own._told, encoded), partial(own.left_out, encoded, context)
        return FunctionPosterior(context.mask.sum(1), self.input_width, *answers)

    def _told(self, encoded: Any, query: Tensor) -> Moments:
        return self.answer(encoded, query.double() if self.in_double else query)

    def left_out(self, encoded: Any, context: Context) -> Moments | None:
        """Of each row of T contexts of S rows given all others, (M, T S, 1, K); None without a closed form."""
        return None

    def adapt(self, tasks: Tasks) -> FunctionPosterior:
        """`condition` on the support sets."""
        return self.condition(tasks.support_x, tasks.support_y, tasks.support_mask)

    def _check(self, what: str, x: Tensor, y: Tensor, mask: Tensor | None) -> None:
        wanted, found = (*x.shape[:2], self.target_width), [tuple(part.shape) for part in (x, y)]
        fits = x.dim() == 3 and x.shape[-1] == self.input_width and y.shape == wanted
        if not fits or (mask is not None and mask.shape != x.shape[:2]):
            raise ValueError(
                f"{what}_x must be (T, rows, {self.input_width}), {what}_y (T, rows, {self.target_width}) and a mask "
                f"(T, rows), got {found[0]}, {found[1]} and {None if mask is None else tuple(mask.shape)}"
            )
        require_finite(f"{what}_y", y, mask)
