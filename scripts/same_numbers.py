"""Does a change of the code change its numbers? Predictions, losses and gradients of some twenty cases.

    python scripts/same_numbers.py write FILE     # before the change
    python scripts/same_numbers.py compare FILE   # after it: the largest difference of every case

Everything is computed in float64 from seeds, on data that scikit-learn ships, through public names only, so that one
file serves any two versions on one machine. (Samplers follow the rounding of a processor; do not compare machines.)
The exit status is 1 if a case differs by more than 1e-8.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits, load_iris

from sureshot import FewShotClassifier, GPClassifier
from sureshot.meta.learners import make_learner
from sureshot.meta.tasks import Tasks
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone

TOLERANCE = 1e-8
SCHEMES = {
    "logistic": ("laplace", "mean_field", "gibbs", "natural_gradient"),
    "softmax": ("laplace",),
    "least_squares": ("auto",),
    "one_vs_each": ("mean_field", "gibbs", "natural_gradient"),
    "logistic_softmax": ("mean_field", "gibbs", "natural_gradient"),
}
LEARNERS = ("ove_mean_field_pl", "ove_gibbs_pl", "cdkt_ml", "dkt", "protonet")
IRIS, IRIS_LABELS = load_iris(return_X_y=True)
DIGITS, DIGIT_LABELS = load_digits(return_X_y=True)
UNIT = DIGITS / np.linalg.norm(DIGITS, axis=1, keepdims=True)


def answers(model: GPClassifier | FewShotClassifier, rows: np.ndarray) -> np.ndarray:
    """All that a classifier says of rows, in one vector."""
    latent, uncertainty = model.predict_latent(rows), model.uncertainty(rows)
    parts = (
        model.predict_proba(rows),
        latent.mean,
        latent.variance,
        model.outlier_score(rows),
        uncertainty.total,
        uncertainty.epistemic,
        np.nan_to_num(np.array([model.log_evidence_, model.temperature_])),
    )
    return np.concatenate([np.ravel(part) for part in parts])


def of_iris(likelihood: str, inference: str) -> np.ndarray:
    """One likelihood and inference on a third of iris, with a class that arrives later."""
    labels = (IRIS_LABELS == 2).astype(int) if likelihood == "logistic" else IRIS_LABELS
    first = np.flatnonzero(labels[::3] < 2) * 3
    model = GPClassifier(likelihood=likelihood, inference=inference, kernel="rbf", n_chains=4, n_sweeps=6)
    model.fit(IRIS[first], labels[first])
    later = np.setdiff1d(np.arange(0, 150, 3), first)
    if len(later):
        model.partial_fit(IRIS[later], labels[later])
    return answers(model, IRIS[1::7])


def of_defaults(rows: np.ndarray, labels: np.ndarray, **options: object) -> np.ndarray:
    """Every argument on "auto"."""
    return answers(GPClassifier(**options).fit(rows[:200], labels[:200]), rows[200:260])


def few_shot(name: str | None, rows: np.ndarray) -> np.ndarray:
    """Five rows of each of four digits, by a checkpoint or by the defaults."""
    chosen = np.concatenate([np.flatnonzero(digit == DIGIT_LABELS)[:5] for digit in range(4)])
    with tempfile.TemporaryDirectory() as folder:
        path = None
        if name is not None:
            path = Path(folder) / "checkpoint.safetensors"
            save_checkpoint(path, learner_of(name), {}, {"episodes": 0}, {})
        return answers(FewShotClassifier(path).fit(rows[chosen], DIGIT_LABELS[chosen]), rows[200:230])


def learner_of(name: str) -> torch.nn.Module:
    """A learner with a small network."""
    options = {"n_chains": 3, "n_sweeps_prediction": 5} if "gibbs" in name else {}
    return make_learner(name, make_backbone("linear", (64,), rank=4), **options)


def of_training(name: str) -> np.ndarray:
    """Losses of three tasks, and their gradients."""
    learner = learner_of(name).double().train()
    generator = torch.Generator().manual_seed(0)
    support_y, query_y = torch.arange(5).repeat(3, 2), torch.arange(5).repeat(3, 3)

    def rows(y: torch.Tensor) -> torch.Tensor:
        drawn = [[np.flatnonzero(int(k) == DIGIT_LABELS)[i] for i, k in enumerate(task)] for task in y]
        return torch.from_numpy(UNIT[np.array(drawn)])

    losses = learner(Tasks(rows(support_y), support_y, rows(query_y), query_y, 5), generator)
    losses.sum().backward()
    gradients = [p.grad.ravel() for p in learner.parameters() if p.grad is not None]
    return torch.cat([losses.detach(), *gradients]).numpy()


def cases() -> dict[str, Callable[[], np.ndarray]]:
    """Every case by its name."""
    found: dict[str, Callable[[], np.ndarray]] = {}
    for likelihood, schemes in SCHEMES.items():
        for scheme in schemes:
            found[f"{likelihood} by {scheme}"] = lambda a=likelihood, b=scheme: of_iris(a, b)
    found["defaults on digits"] = lambda: of_defaults(DIGITS, DIGIT_LABELS)
    found["defaults on unit rows"] = lambda: of_defaults(UNIT, DIGIT_LABELS)
    found["inducing"] = lambda: of_defaults(
        DIGITS, DIGIT_LABELS, kernel="matern32", approximation="inducing", n_inducing=50
    )
    found["few-shot defaults"] = lambda: few_shot(None, DIGITS)
    found["few-shot defaults on unit rows"] = lambda: few_shot(None, UNIT)
    for name in LEARNERS:
        found[f"few-shot by {name}"] = lambda a=name: few_shot(a, UNIT)
        found[f"training of {name}"] = lambda a=name: of_training(a)
    return found


def main(action: str, path: str) -> int:
    """Write the numbers of all cases, or compare them with those written."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {name: case() for name, case in cases().items()}
    if action == "write":
        np.savez(path, **found)
        return 0
    worst = 0.0
    with np.load(path) as before:
        for name, values in found.items():
            difference = float((np.abs(values - before[name]) / (1 + np.abs(before[name]))).max())
            worst = max(worst, difference)
            print(f"{difference:9.1e}  {name}")
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "compare"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
