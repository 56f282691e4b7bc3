"""A rehearsal of the sessions among the base classes, in which settings of later sessions are chosen.

Settings must not be chosen on test photographs, and novel classes have no rows but their shots. So some base classes
play the novel ones: a network is trained on the others, and then nearly as many sessions as in the real protocol bring
a few rows of each. Two sessions were too few, as forgetting accumulates.
"""

from __future__ import annotations

import numpy as np
import torch

from experiments.train_test import TrainTestData
from sureshot.data.class_splits import shuffled
from sureshot.deep import held_out_rows
from sureshot.incremental.sessions import Session, Sessions

ENDING = "-rehearsal"
"""Of the names of data that are a rehearsal."""

_SHOTS = 5
_SEED = 0  # of the choice of classes and shots: settings are chosen once


def rehearsal_name(base: str, n_sessions: int) -> str:
    """The name of the rehearsal on some base data."""
    return f"{base}-{n_sessions}-sessions{ENDING}"


def rehearsal(
    base: TrainTestData,  # the base classes
    aside: float,  # share of their training rows that is kept aside
    way: int,  # classes of a later session
    n_sessions: int,  # later ones
) -> tuple[TrainTestData, Sessions]:
    """Training data for the network of the rehearsal, and its sessions."""
    rows, name = base.train, rehearsal_name(base.name, n_sessions)
    y, kept = rows.y.numpy(), held_out_rows(rows.y, aside, _SEED).numpy()
    order = shuffled(rows.n_classes, _SEED)
    novel = order[: n_sessions * way].reshape(n_sessions, way)
    known = np.sort(order[n_sessions * way :])
    is_known = np.isin(y, known)
    later = [_session(y, classes) for classes in novel]
    is_shot = np.zeros(len(y), dtype=bool)
    is_shot[[row for session in later for row in session.rows]] = True
    first = Session(tuple(known.tolist()), tuple(np.flatnonzero(is_known & ~kept).tolist()))
    asked = torch.from_numpy(np.where(is_known, kept, ~is_shot))
    sessions = Sessions(rows, rows.select_rows(asked), (first, *later), name, "a rehearsal among base classes")
    classes, is_aside = rows.select_classes(known.tolist()), torch.from_numpy(kept[is_known])
    learnt = TrainTestData(classes.select_rows(~is_aside), classes.select_rows(is_aside), name, sessions.description)
    return learnt, sessions


def _session(y: np.ndarray, classes: np.ndarray) -> Session:
    rows = [np.random.default_rng([_SEED, c]).permutation(np.flatnonzero(y == c))[:_SHOTS] for c in classes.tolist()]
    return Session(tuple(classes.tolist()), tuple(np.concatenate(rows).tolist()))
