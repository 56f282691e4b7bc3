"""Which labelled rows drove an answer: how much less probable it would be without each of them.

What a row does is the fall of the log probability if the row is left out and everything else stays: kernel, scales,
temperatures, how often classes come, and the sites of the other rows (`Fitted.probabilities_without`). Rows whose loss
makes the answer less probable spoke for it, the proponents; those whose loss makes it more probable spoke against it,
the opponents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.estimators.classes.class_fitted import ClassFitted, NoInfluence
from sureshot.estimators.classes.temperature import log_probability
from sureshot.estimators.entries import Entries


@dataclass(frozen=True)
class NamedRows:
    """Labelled rows, and what they do: equal rows are left out together, as one, but rows with ids each by itself."""

    falls: np.ndarray  # (..., k), of a log probability in nats, if the row is left out; negative: it rises
    labels: np.ndarray  # (..., k)
    row_ids: np.ndarray  # (..., k), None for rows without an id
    inputs: np.ndarray  # (..., k, D), the rows as the model keeps them


@dataclass(frozen=True)
class Influence:
    """Which labelled rows drove each of n answers."""

    classes: np.ndarray  # (n,), whose probabilities are explained
    log_probabilities: np.ndarray  # (n,), of these, in nats
    proponents: NamedRows  # (n, k), the largest fall first; where fewer rows spoke for it, the last are not positive
    opponents: NamedRows  # (n, k), the largest rise first; where fewer rows spoke against it, the last are not negative
    together: NamedRows  # (N,), all rows, their falls summed over the answers; the largest rise first


def influence_on(
    fitted: ClassFitted,
    kept: np.ndarray,  # (n, width), queries in the form in which rows are kept
    n_rows: int,
    classes: np.ndarray | None = None,  # (n,), numbers of those to explain; None: of the answers
) -> Influence:
    """By blocks of queries that bound memory."""
    if len(fitted.classes) < 2:
        raise NoInfluence(f"influence compares two classes; the model knows {fitted.classes.tolist()[0]!r} only.")
    rows = Entries.of(fitted)
    inputs, found = fitted.predictor.inputs(kept), []
    total = np.zeros(len(rows.y))
    with torch.no_grad():
        at_once = AT_ONCE // max(1, len(rows.y) * fitted.entries_without)
        at_once = max(1, min(at_once, fitted.predictor.queries_at_once))
        for start in range(0, len(inputs), at_once):
            block = inputs[start : start + at_once]
            p = fitted.answers(fitted.predictor.moments(block), fitted.temperature)
            which = p.argmax(1) if classes is None else torch.from_numpy(classes[start : start + at_once]).to(p.device)
            known = log_probability(p.gather(1, which[:, None]))  # (Q, 1)
            falls = (known - _log_probabilities_without(fitted, block, rows, which)).cpu().numpy()
            total += falls.sum(0)
            order = np.argsort(-falls, axis=1, kind="stable")
            ends = order[:, :n_rows], order[:, ::-1][:, :n_rows]
            largest = [(np.take_along_axis(falls, end, 1), end) for end in ends]
            found.append((which.cpu().numpy(), known[:, 0].cpu().numpy(), *largest[0], *largest[1]))
    explained, logs, *named = map(np.concatenate, zip(*found, strict=True))
    everywhere = np.argsort(total, kind="stable")
    return Influence(
        fitted.classes[explained],
        logs,
        _named(rows, fitted.classes, *named[:2]),
        _named(rows, fitted.classes, *named[2:]),
        _named(rows, fitted.classes, total[everywhere], everywhere),
    )


def _named(rows: Entries, classes: np.ndarray, falls: np.ndarray, which: np.ndarray) -> NamedRows:
    """Those of some numbers (..., k)."""
    return NamedRows(falls, classes[rows.y[which]], rows.name[which], rows.x[which])


def _log_probabilities_without(fitted: ClassFitted, block: Tensor, rows: Entries, which: Tensor) -> Tensor:
    """Of one class for each query, without each of the rows, (Q, E)."""
    p = fitted.probabilities_without(block, rows.place, rows.share)
    p = fitted.under_prior(p.flatten(0, 1)).view_as(p)
    return log_probability(p.gather(2, which[:, None, None].expand(-1, p.shape[1], 1)).squeeze(2))
