"""Where tasks of numbers come from: a source of functions, each seen at some of its inputs.

A source knows how to draw functions and rows of them (`FunctionSource.rows`); what is context and what are targets is
the same for all. Targets come first among the rows of a function and the context after them, so that tasks of fewer
context rows (`with_context`) ask for the same targets, and no row is in both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sureshot.meta.protocols import FunctionProtocol
from sureshot.meta.tasks import Tasks


class FunctionRows(NamedTuple):
    """Rows of T functions in random order."""

    x: Tensor  # (T, N, D)
    y: Tensor  # (T, N, K)
    counts: Tensor  # (T, 1), of real rows, which come first
    origin: Tensor | None = None  # (T, P); see `Tasks.origin`


class FunctionSource(ABC):
    """Draws functions; derived classes state the widths and write `rows`."""

    input_width: int  # D
    target_width: int  # K
    identity: str  # what tells it from all others: a run resumes with the same source only
    inputs: tuple[float, float] | None = None  # of training, where functions are known beyond that range as well

    @abstractmethod
    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        """At most `n_rows` rows of each of so many functions, at least two; `beyond` only where that is offered."""

    def sample(
        self,
        n_tasks: int,
        protocol: FunctionProtocol,
        generator: torch.Generator,  # the only source of randomness, on the CPU
        beyond: bool = False,  # the range of the training's inputs, both context and targets
    ) -> Tasks:
        """Tasks in float32; rows that a function lacks are padding."""
        if n_tasks < 1 or (beyond and self.inputs is None):
            raise ValueError(f"expected at least one task, and no inputs beyond those there are; got {n_tasks} tasks")
        (fewest, most), wanted = protocol.context_range, protocol.targets
        x, y, counts, origin = self.rows(n_tasks, most + wanted, generator, beyond)
        kept = (counts // 2).clamp_max(wanted)  # for targets, of functions with few rows
        left = counts - kept
        # Of functions with few rows all sizes that they have are drawn, small ones up to twice as often as large ones.
        drawn = torch.randint(most - fewest + 1, (n_tasks, 1), generator=generator) % (left - fewest + 1).clamp_min(1)
        n_context = (fewest + drawn).minimum(left)
        n_targets = (counts - n_context).clamp_max(wanted)

        def taken(start: Tensor, size: int, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mask = torch.arange(size) < count
            at = (start + torch.arange(size)).clamp_max(x.shape[1] - 1).unsqueeze(-1)
            parts = (part.gather(1, at.expand(-1, -1, part.shape[-1])) for part in (x, y))
            found_x, found_y = (part.masked_fill(~mask.unsqueeze(-1), 0.0).float() for part in parts)
            return found_x, found_y, mask

        query_x, query_y, query_mask = taken(torch.zeros_like(n_targets), wanted, n_targets)
        context_x, context_y, context_mask = taken(n_targets, most, n_context)
        masks = (context_mask, None if bool(query_mask.all()) else query_mask)
        return Tasks(context_x, context_y, query_x, query_y, 0, *masks, origin=origin)


class FunctionData(NamedTuple):
    """Functions to learn from, to choose a checkpoint by, and to test on."""

    train: FunctionSource
    val: FunctionSource
    test: FunctionSource
    description: str  # one line for tables and reports
    # Of a table: means and deviations, ``[[...], [...]]``, by which "inputs" and "targets" are standardised, and names
    # of the inputs, "columns".
    units: dict[str, Any] | None = None


def with_context(tasks: Tasks, size: int) -> Tasks:
    """The same tasks with at most so many context rows, their first."""
    assert tasks.support_mask is not None
    x, y, mask = (part[:, :size] for part in (tasks.support_x, tasks.support_y, tasks.support_mask))
    return replace(tasks, support_x=x, support_y=y, support_mask=mask)


def uniform_inputs(
    n_tasks: int, n_rows: int, bounds: tuple[float, float], generator: torch.Generator, beyond: bool
) -> Tensor:
    """Inputs (T, N, 1) from a range, or from one as wide above it; exact in float32, as tasks have them."""
    low, high = bounds
    x = low + (high - low) * torch.rand(n_tasks, n_rows, 1, generator=generator, dtype=torch.float64)
    return (x + (high - low) * beyond).float().double()


def checked_range(name: str, values: tuple[float, ...], positive: bool = True) -> tuple[float, float]:
    """Two numbers in order: positive ones that may be equal, or any that rise."""
    if len(values) != 2 or not (0 < values[0] <= values[1] if positive else values[0] < values[1]):
        raise ValueError(f"{name} must be two rising{' positive' * positive} numbers, got {list(values)}")
    return values[0], values[1]
