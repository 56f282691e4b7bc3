"""Episodes drawn from a labelled set, all tasks of a batch at once.

Drawing happens in two steps. `EpisodeSampler.draw` chooses *row numbers*: a random order of the classes (random
keys, the largest first) gives every task its classes and their labels; a random order of the rows of each class
gives support rows first and query rows next, so the two never overlap. `EpisodeSampler.gather` then looks the rows
up, in the images or in embeddings that were computed before. So the same tasks can be met as images and as embeddings,
and each of several processes can draw all tasks of a step and look up its share.

Within a task rows are sorted by class, then by shot; the labels are a random permutation of the chosen classes.
When counts are ranges, all batches are padded to the largest task the protocol allows: a class is a block of as
many rows as the most shots (or queries), of which the mask keeps the first ones. Padded rows are zero.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sureshot.meta.protocols import PROTOCOLS, EpisodeProtocol
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import as_inputs

if TYPE_CHECKING:
    from sureshot.data.labelled import LabelledSet

__all__ = ["PROTOCOLS", "EpisodeProtocol", "EpisodeSampler"]


class EpisodeSampler:
    """Draws episodes from a labelled set.

    Raises
    ------
    ValueError
        If there are fewer classes than the protocol's (largest) way, or a class has fewer rows than its (largest)
        shots and queries together; the message names the class.
    """

    def __init__(
        self,
        data: LabelledSet,
        protocol: EpisodeProtocol,
        images_only: bool = False,  # only `draw_images` will be asked for, which needs one row of a class
    ) -> None:
        self.data = data
        self.protocol = protocol
        self.n_classes = len(data.class_names)
        y = data.y.cpu()
        counts = torch.bincount(y, minlength=self.n_classes)
        _check_sizes(data, counts, protocol, 1 if images_only else protocol.rows_per_class)
        self._counts = counts  # (K,)
        self._starts = counts.cumsum(0) - counts  # (K,)
        self._by_class = y.argsort(stable=True)  # row numbers, class after class

    def sample(
        self,
        n_tasks: int,
        generator: torch.Generator,  # the only source of randomness, on the CPU
    ) -> Tasks:
        """Tasks of inputs: images as float32 in [0, 1], everything else as it is."""
        return self.gather(self.draw(n_tasks, generator))

    def draw(self, n_tasks: int, generator: torch.Generator, out_of_episode: bool = False) -> Tasks:
        """Tasks of row numbers, (T, S) and (T, Q); ``class_ids`` is -1 for a class that a task does not have.

        With `out_of_episode` they are the same tasks, with as many queries from as many other classes after their own;
        ``query_y`` of those is -1.
        """
        if n_tasks < 1:
            raise ValueError(f"the number of tasks must be at least 1, got {n_tasks}")
        protocol, device = self.protocol, generator.device
        (fewest, most), shots, queries = protocol.ways, protocol.shot_range, protocol.query_range
        if out_of_episode and 2 * most > self.n_classes:
            raise ValueError(
                f"out-of-episode queries need twice the way, {2 * most} classes, but there are {self.n_classes}: "
                "lower way"
            )
        # In float64 no two keys are equal, so the first half does not depend on whether others are asked for.
        keys = torch.rand(n_tasks, self.n_classes, generator=generator, device=device, dtype=torch.float64)
        chosen = keys.topk(2 * most if out_of_episode else most).indices.cpu()  # (T, C or 2C), in random order
        inside, outside = chosen[:, :most], chosen[:, most:]

        def counts(bounds: tuple[int, int], columns: int) -> Tensor | None:
            """Numbers (T, columns) from a range; nothing is drawn for a range of one."""
            if bounds[0] == bounds[1]:
                return None
            drawn = torch.randint(bounds[0], bounds[1] + 1, (n_tasks, columns), generator=generator, device=device)
            return drawn.cpu()

        way = counts((fewest, most), 1)
        n_shots = counts(shots, most if protocol.unbalanced else 1)
        n_queries = counts(queries, 1)
        class_mask = None if way is None else torch.arange(most) < way

        rows = self._draw_rows(inside, shots[1] + queries[1], generator)  # (T, C, shots + queries)
        support, query = rows[..., : shots[1]], rows[..., shots[1] :]
        labels = torch.arange(most).expand(n_tasks, most)
        query_y = _repeat(labels, queries[1])
        query_mask = _mask(class_mask, n_queries, queries[1], n_tasks, most)
        query = query.flatten(1)
        if out_of_episode:
            others = self._draw_rows(outside, queries[1], generator)
            query = torch.cat([query, others.flatten(1)], 1)
            query_y = torch.cat([query_y, torch.full_like(query_y, -1)], 1)
            query_mask = None if query_mask is None else torch.cat([query_mask, query_mask], 1)
        return Tasks(
            support_x=support.flatten(1),
            support_y=_repeat(labels, shots[1]),
            query_x=query,
            query_y=query_y,
            n_classes=most,
            support_mask=_mask(class_mask, n_shots, shots[1], n_tasks, most),
            query_mask=query_mask,
            class_mask=class_mask,
            class_ids=inside if class_mask is None else inside.masked_fill(~class_mask, -1),
        )

    def draw_images(self, n_images: int, generator: torch.Generator, n_batches: int = 1) -> Tasks:
        """Plain labelled batches, for learners that train as ordinary classifiers of all K classes.

        They are tasks of row numbers, each with `n_images` rows in the support, no query, and the classes of the
        labelled set for labels. Rows come in a random order of all of them; where there are too few, in several orders
        one after another.
        """
        if n_images < 1 or n_batches < 1:
            raise ValueError(f"expected at least one batch of at least one row, got {n_batches} of {n_images}")
        total, available = n_images * n_batches, len(self.data.y)
        orders = [
            torch.randperm(available, generator=generator, device=generator.device)
            for _ in range(math.ceil(total / available))
        ]
        rows = torch.cat(orders)[:total].cpu().unflatten(0, (n_batches, n_images))
        none = rows[:, :0]
        y = self.data.y.cpu()[rows]
        every = torch.arange(self.n_classes).expand(n_batches, -1)
        return Tasks(rows, y, none, none, self.n_classes, class_ids=every)

    def gather(
        self,
        rows: Tasks,  # of row numbers
        x: Tensor | None = None,  # (N, ...), what to look up in; the labelled set's own inputs by default
        query_x: Tensor | None = None,  # the same for the queries, if they are to come from elsewhere
    ) -> Tasks:
        """Look rows up; the tasks are on the device of `x`."""
        source = self.data.x if x is None else x
        query_source = source if query_x is None else query_x
        for given in (source, query_source):
            if len(given) != len(self.data.y):
                raise ValueError(
                    f"expected one entry for each of the {len(self.data.y)} rows of the labelled set, got {len(given)}"
                )
        tasks = rows.with_inputs(
            _look_up(source, rows.support_x, rows.support_mask), _look_up(query_source, rows.query_x, rows.query_mask)
        )
        return tasks if source.device.type == "cpu" else tasks.to(source.device)

    def _draw_rows(self, classes: Tensor, n_rows: int, generator: torch.Generator) -> Tensor:
        """`n_rows` different rows of each class, (T, C, n_rows) for classes (T, C)."""
        counts = self._counts[classes]  # (T, C)
        largest = int(self._counts.max())
        keys = torch.rand(
            *classes.shape, largest, generator=generator, device=generator.device, dtype=torch.float32
        ).cpu()
        beyond = torch.arange(largest) >= counts.unsqueeze(-1)
        places = keys.masked_fill_(beyond, -1).topk(n_rows).indices
        return self._by_class[self._starts[classes].unsqueeze(-1) + places]


def _look_up(x: Tensor, rows: Tensor, mask: Tensor | None) -> Tensor:
    """Inputs (T, n, ...) of rows (T, n), zero where masked."""
    found = as_inputs(x.index_select(0, rows.flatten().to(x.device))).unflatten(0, rows.shape)
    if mask is not None:
        found[~mask.to(x.device)] = 0
    return found


def _repeat(labels: Tensor, times: int) -> Tensor:
    """Labels (T, C) as (T, C * times), each label beside its repeats."""
    return labels.repeat_interleave(times, 1)


def _mask(class_mask: Tensor | None, counts: Tensor | None, most: int, n_tasks: int, n_classes: int) -> Tensor | None:
    """Which of the `most` rows of every class are real, (T, C * most); None if all are."""
    if class_mask is None and counts is None:
        return None
    mask = torch.ones(n_tasks, n_classes, most, dtype=torch.bool)
    if counts is not None:
        mask &= torch.arange(most) < counts.unsqueeze(-1)
    if class_mask is not None:
        mask &= class_mask.unsqueeze(-1)
    return mask.flatten(1)


def _check_sizes(data: LabelledSet, counts: Tensor, protocol: EpisodeProtocol, rows: int) -> None:
    most = protocol.ways[1]
    if len(data.class_names) < most:
        raise ValueError(
            f"{most}-way tasks need at least {most} classes, but the labelled set has {len(data.class_names)}: "
            "lower way, or use a set with more classes"
        )
    short = (counts < rows).nonzero().flatten().tolist()
    if short:
        first = short[0]
        others = f" (and {len(short) - 1} more classes have too few)" if len(short) > 1 else ""
        raise ValueError(
            f"class {data.class_names[first]!r} has {int(counts[first])} rows, fewer than {protocol.shot_range[1]} "
            f"shots and {protocol.query_range[1]} queries = {protocol.rows_per_class}{others}: lower these, or "
            "leave the class out"
        )
