"""Members that see nearest rows: which of them there are, and what each learns."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from sureshot.computing.layout import aligned
from sureshot.estimators.gp.model import LEAST_SQUARES
from sureshot.estimators.gp.plan import Locality, Plan, SupportOf, columns_ranks
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.local_learning import learn, local_kernel
from sureshot.estimators.gp.tuning.objective import Objective
from sureshot.estimators.rows.clock import Clock, Past
from sureshot.estimators.rows.labelled_rows import LabelledRows, part_of, sample_of
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.rows.support import Support
from sureshot.kernels import Scale
from sureshot.progress import stage

OF_COLUMNS, OF_RANKS = "matern32", "laplacian"
"""Smooth in columns as they are scaled, where distances mean something; and by single columns, in their ranks."""

MOST_LEARNT = 100_000  # rows that settings are learnt from, as each search for neighbours takes as long as there are


def local_plans(
    settings: Settings,
    rows: LabelledRows,
    support_of: SupportOf,
    objective: Objective,
    scaling: Scaling,
    clock: Clock | None,
) -> list[Plan]:
    """Two for an average, one of a kernel that is named."""
    cpu = torch.device("cpu")
    some = sample_of(rows, min(1.0, MOST_LEARNT / len(rows.y)))
    past = None
    if clock is not None:
        assert scaling.time is not None
        some = part_of(rows, np.argsort(rows.x[:, clock.place], kind="stable")[-MOST_LEARNT:])
        past = Past.of(some.x[:, clock.place], some.lots, clock.batch, scaling.time, clock.counted)
    support = support_of(some, scaling, cpu)
    if not settings.averages:
        kinds = [(OF_COLUMNS if settings.kernel == "auto" else settings.kernel, scaling)]
    else:
        ranks = columns_ranks(support)
        kinds = [(OF_COLUMNS, scaling), (OF_RANKS, scaling if ranks is None else replace(scaling, ranks=ranks))]
    found = []
    for number, (name, own) in enumerate(kinds):
        with stage(number / len(kinds), (number + 1) / len(kinds)):
            seen = support if own is scaling else support_of(some, own, cpu)
            found.append(_plan(settings, name, own, seen, objective, past, clock))
    return found


def _plan(
    settings: Settings,
    name: str,
    scaling: Scaling,
    support: Support,
    objective: Objective,
    past: Past | None,
    clock: Clock | None,
) -> Plan:
    learnt = learn(name, support, objective, settings.n_neighbours, settings.seed, past=past)
    inverse = learnt.lengthscale.reciprocal()
    size = inverse.square().mean().sqrt()
    if len(inverse) > 1:
        scaling = replace(scaling, relevance=(inverse / size).numpy())
    kernel = Scale(torch.ones((), dtype=torch.float64), local_kernel(name, aligned(size.reciprocal()[None])))
    kernel = kernel.to(settings.device)
    gain, doubt = (*learnt.link, 1.0)[:2]
    model, local = replace(LEAST_SQUARES, noise=learnt.noise), Locality(settings.n_neighbours, gain, doubt)
    if clock is not None:
        local = replace(local, batch=clock.batch, counted=clock.counted)
    return Plan(scaling, kernel, model, "plug_in", 1.0, math.nan, local=local)
