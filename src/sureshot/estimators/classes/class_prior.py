"""How often classes come: other frequencies than those of the labelled rows, stated or learned from unlabelled rows.

A classifier takes its rows' frequencies for those of the rows to come. Where that is wrong, since a class had more
examples because somebody had more of them, probabilities are divided by the frequencies and multiplied by what holds in
their place: Bayes' rule, if rows of a class look alike wherever they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from sureshot.data.checks import listed

MAX_STEPS, TOLERANCE = 1000, 1e-8
ADDED_ROWS = 50.0
"""To each class by "auto", for embeddings: a few picked examples are weak evidence of how often classes come."""


def class_prior(given: Any, classes: np.ndarray) -> np.ndarray | None:
    """Probabilities (C,) that sum to 1, of "uniform", by label or an array; None of "support" and "auto".

    An array has the sorted order of the classes, as ``classes_``. A dict or a Series (by its index) may name further
    labels: classes to come, or that have been forgotten. The result has the order of `classes`.
    """
    if isinstance(given, str) and given in ("auto", "support", "uniform"):
        return np.full(len(classes), 1 / len(classes)) if given == "uniform" else None
    places = np.argsort(classes, kind="stable")
    labels = classes[places].tolist()
    if isinstance(given, pd.Series):
        given = given.to_dict()
    if isinstance(given, Mapping):
        missing = [label for label in labels if label not in given]
        unknown = [label for label in given if label not in labels]
        if missing:
            also = f", and one for {listed(unknown)}, which are no classes" if unknown else ""
            raise ValueError(
                f"class_prior must give a probability to each of the {len(labels)} classes; got none for "
                f"{listed(missing)}{also}. A dict may name classes to come beforehand."
            )
        values = [given[label] for label in labels]
    else:
        values = given
    try:
        prior = np.array(values.cpu().numpy() if isinstance(values, Tensor) else values, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(_EXPECTED.format(repr(given))) from error
    if prior.ndim != 1 or isinstance(given, str):
        raise ValueError(_EXPECTED.format(repr(given)))
    if len(prior) != len(labels):
        raise ValueError(
            f"class_prior must have a probability for each of the {len(labels)} classes, in the order of classes_; "
            f"got {len(prior)}. Where classes come and go, state a dict by label."
        )
    if not (np.isfinite(prior).all() and (prior >= 0).all() and prior.any()):
        raise ValueError(f"class_prior must hold finite numbers that are not negative and not all 0; got {given!r}.")
    shares = np.ldexp(prior, -np.frexp(prior.max())[1])  # whose sum is a number, and no digit is lost
    found: np.ndarray = (shares / shares.sum())[np.argsort(places)]
    return found


def usual_prior(stated: Any, classes: np.ndarray, frequencies: np.ndarray, embeddings: bool) -> np.ndarray | None:
    """The prior that is stated; of "auto" what is usual, as frequencies of the rows say little of `embeddings`."""
    if isinstance(stated, str) and stated == "auto" and embeddings:
        return prior_of_few(frequencies)
    return class_prior(stated, classes)


def carried_prior(prior: np.ndarray | None, known: np.ndarray, classes: np.ndarray) -> np.ndarray | None:
    """A prior (C,) of the known classes as that of others: what is left of it, and "uniform" stays so.

    ValueError where it says nothing of some, or of all that are left.
    """
    if prior is None:
        return None
    if (prior == prior[0]).all():
        return np.full(len(classes), 1 / len(classes))
    of = dict(zip(known.tolist(), prior.tolist(), strict=True))
    return class_prior(of, classes)


def same_prior(first: np.ndarray | None, second: np.ndarray | None) -> bool:
    """Whether two priors of the same classes are one, but for rounding."""
    if first is None or second is None:
        return first is second
    return bool(np.allclose(first, second, rtol=1e-9, atol=0))


_EXPECTED = "class_prior must be 'auto', 'support', 'uniform', a dict by label or an array of probabilities; got {}."


def prior_of_few(frequencies: np.ndarray) -> np.ndarray | None:
    """What "auto" makes of the frequencies (C,) of embeddings; None where they are even as they are."""
    if (frequencies == frequencies[0]).all():
        return None
    added: np.ndarray = frequencies + ADDED_ROWS
    return added / added.sum()


def under_prior(
    p: Tensor,  # (Q, C), under the frequencies
    frequencies: np.ndarray,  # (C,), zero for classes without rows, whose probabilities are taken as they are
    prior: np.ndarray,  # (C,)
) -> Tensor:
    """Class probabilities (Q, C) where classes come as the prior says."""
    weighted = p * p.new_tensor(_ratio(frequencies, prior))
    total = weighted.sum(1, keepdim=True)
    return (weighted / total).where(total > 0, p.new_tensor(prior))


def adapted_prior(p: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """How often the classes come among unlabelled rows with probabilities (n, C), by expectation maximisation.

    The rows that were learned from count as one row more, so that no class dies out of few rows.

    Reference: Saerens, Latinne & Decaestecker 2002, equation 9.
    """
    prior = support = assumed(frequencies)
    for _ in range(MAX_STEPS):
        shares = p * _ratio(frequencies, prior)
        counts = (shares / shares.sum(1, keepdims=True)).sum(0)
        before, prior = prior, (counts + support) / (len(p) + 1)
        if np.abs(prior - before).max() < TOLERANCE:
            break
    return prior


def assumed(frequencies: np.ndarray) -> np.ndarray:
    """What probabilities take for granted of how often classes come, (C,), summing to 1.

    A class without rows is predicted as if it had an even share of them.
    """
    found: np.ndarray = np.where(frequencies > 0, frequencies, frequencies.sum() / len(frequencies))
    return found / found.sum()


def _ratio(frequencies: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Prior over frequency."""
    found: np.ndarray = prior / assumed(frequencies)
    return found
