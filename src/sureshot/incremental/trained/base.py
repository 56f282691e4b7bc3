"""What all methods share whose network goes on learning: a network for the base session, and training it further.

The base session's network is the one of a checkpoint, which many methods can share, or is trained here: by softmax,
then, if the method's own network is another, by its loss at a tenth of the rate. Of its rows some are kept aside: they
choose the epoch of what is trained here, and to them a method fits the temperature of what is no probability by itself.
If the checkpoint's training kept the same share aside with the same seed, they are the same rows.

A later session trains a copy of the network, enlarged by the new classes, on what the session brings and what the
method has kept, with a penalty for what it forgets. The statistics of batch normalisation stay those of the base
session. The copy takes the network's place in the end, so a call that fails changes nothing.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from sureshot.data.settings_files import section
from sureshot.deep import (
    ClassifierSettings,
    ClassifierTraining,
    GrowingClassifier,
    SoftmaxNetwork,
    held_out_rows,
    load_deep_classifier,
)
from sureshot.deep.training import Penalty
from sureshot.incremental.arriving import by_label, check_finite, checked_labels, numbered
from sureshot.incremental.method import Memory, SessionMethod
from sureshot.networks import Processes, Trained, train
from sureshot.networks.backbones import check_backbone, draws_weights, make_backbone
from sureshot.networks.backbones.base import describe
from sureshot.persistence import ArtifactError

Kept = TypeVar("Kept")

_BACKBONE = {"name": "resnet18"}
_GIVEN_OTHERWISE = {
    "seed": "the method's seed is used",
    "validate_every": "there are no rows to choose an epoch by",
    "select_by": "there are no rows to choose an epoch by",
}
"""Keys that a session's settings do not take, and why."""


GRADIENT_DESCENT: Mapping[str, Any] = {"epochs": 20, "batch_size": 128, "learning_rate": 0.01}
"""A default for later sessions: short, and a tenth of the usual rate."""


class Rows(NamedTuple):
    """Rows with their labels and embeddings."""

    x: Tensor  # (N, ...), bytes of images or floats
    y: Tensor  # (N,) int64
    embeddings: Tensor  # (N, D)

    def of(self, mask: Tensor) -> Rows:
        """Those that the mask (N,) names."""
        return Rows(self.x[mask], self.y[mask], self.embeddings[mask])


@dataclass(frozen=True)
class Known(Generic[Kept]):
    """All that a method has learnt."""

    classes: np.ndarray  # (C,)
    classifier: GrowingClassifier  # in evaluation mode; never trained again, only copies of it are
    kept: Kept


@dataclass(kw_only=True, eq=False)
class NetworkMethod(SessionMethod, Generic[Kept]):
    """A method on whatever rows its backbone takes; of two base classes or more.

    Attributes
    ----------
    checkpoint : str, optional
        Of a deep classifier of the method's kind that has learnt the base session, its classes in the order of their
        labels; by default one is trained.
    backbone : table, optional
        Name and options of the backbone of a network that is trained here; ResNet-18 by default.
    base : table, optional
        How the base session is trained, keys of `sureshot.deep.ClassifierSettings`; by default the epoch is chosen by
        ``nll``.
    later : table, optional
        How each later session is trained, likewise; what is left out is the method's own default.
    aside : float
        Share of each base class's rows that is kept aside.
    seed : int
        Of rows kept aside, orders of rows, augmentation and new weights.
    device : str
        Where the network is.
    """

    name: ClassVar[str]
    kind: ClassVar[type[GrowingClassifier]]
    """Of the network."""

    later_defaults: ClassVar[Mapping[str, Any]]
    """How later sessions are trained unless `later` says otherwise."""

    checkpoint: str | None = None
    backbone: dict | None = None
    base: dict | None = None
    later: dict | None = None
    aside: float = 0.05
    seed: int = 0
    device: str = "cpu"
    _known: Known[Kept] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.checkpoint is not None and (self.backbone is not None or self.base is not None):
            raise ValueError("checkpoint is a trained network: leave backbone and base out, or train without it")
        if not 0 < self.aside < 1:
            raise ValueError(f"aside must lie between 0 and 1, got {self.aside}")
        options = dict(_BACKBONE if self.backbone is None else self.backbone)
        check_backbone(options.pop("name", "unnamed"), options)
        # By accuracy, which few rows kept aside soon have in full, the first epoch would often be the best.
        base = section("base", ClassifierSettings, {"select_by": "nll", **(self.base or {})})
        self._base_settings = replace(base, seed=self.seed)
        self._later_settings = self._session_settings("later", self.later_defaults, self.later)

    @abstractmethod
    def _begun(
        self,
        classifier: GrowingClassifier,
        base: Rows,  # less those kept aside
        aside: Rows,
    ) -> Kept:
        """What is kept of the base session beside the network."""

    @abstractmethod
    def _continued(self, known: Known[Kept], x: Tensor, y: Tensor, n_classes: int) -> tuple[GrowingClassifier, Kept]:
        """The network after a later session with rows (N, ...) of classes (N,), and what is kept then.

        Classes from the number known so far on are new, each with a row.
        """

    @abstractmethod
    def _scores(self, classifier: GrowingClassifier, kept: Kept, embeddings: Tensor) -> Tensor:
        """Log probabilities of embeddings (Q, D), up to a number for each row, (Q, C)."""

    @abstractmethod
    def _outlier(self, classifier: GrowingClassifier, kept: Kept, embeddings: Tensor) -> Tensor:
        """Outlier scores (Q,) of embeddings (Q, D)."""

    @abstractmethod
    def _memory(self, classifier: GrowingClassifier, kept: Kept) -> tuple[int, int]:
        """Numbers that are kept beside the backbone: whatever the number of classes is, and for the classes."""

    @property
    def classes_(self) -> np.ndarray:  # type: ignore[override]
        """Labels of the columns."""
        return np.sort(self._current().classes)

    def fit(self, X: Any, y: Any, unseen: Any = None) -> Self:
        """Learn the base session."""
        x, labels = _inputs(X, None), checked_labels(y, len(np.asarray(X)))
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y: expected two classes or more to train a network, got {classes.tolist()}")
        numbers = torch.from_numpy(codes)
        aside = held_out_rows(numbers, self.aside, self.seed)
        if self.checkpoint is None:
            classifier = self._trained_base(x, numbers, aside, len(classes))
        else:
            classifier = self._loaded_base(Path(self.checkpoint), x, len(classes))
        classifier.precision = self._later_settings.precision
        rows = Rows(x, numbers, self._embedded(classifier, x))
        if self.checkpoint is not None:
            self._check_order(classifier, rows, len(classes))
        kept = self._begun(classifier, rows.of(~aside), rows.of(aside))
        self._known = Known(classes, classifier, kept)
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn a later session."""
        known = self._known
        if known is None:
            return self.fit(X, y)
        x, labels = _inputs(X, known.classifier.backbone.input_shape), checked_labels(y, len(np.asarray(X)))
        classes, codes = numbered(labels, known.classes)
        classifier, kept = self._continued(known, x, codes, len(classes))
        self._known = Known(classes, classifier.eval(), kept)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, C)."""
        known, embeddings = self._asked(X)
        with torch.no_grad():
            scores = self._scores(known.classifier, known.kept, embeddings)
        return by_label(torch.softmax(scores.double(), -1), known.classes)

    def outlier_score(self, X: Any) -> np.ndarray:
        """Outlier scores (n,)."""
        known, embeddings = self._asked(X)
        with torch.no_grad():
            return self._outlier(known.classifier, known.kept, embeddings).double().cpu().numpy()

    def memory(self) -> Memory:
        """What is kept between sessions; the backbone, which changes, is among what is shared."""
        known = self._current()
        shared, of_classes = self._memory(known.classifier, known.kept)
        backbone = sum(value.numel() for value in known.classifier.backbone.state_dict().values())
        return Memory(backbone + shared, of_classes, len(known.classes))

    def _current(self) -> Known[Kept]:
        if self._known is None:
            raise ValueError(f"{type(self).__name__} has learnt nothing yet: call fit() with the base session first.")
        return self._known

    def _asked(self, X: Any) -> tuple[Known[Kept], Tensor]:
        known = self._current()
        x = _inputs(X, known.classifier.backbone.input_shape)
        return known, self._embedded(known.classifier, x)

    def _embedded(self, classifier: GrowingClassifier, x: Tensor) -> Tensor:
        """Embeddings (N, D), where the network is."""
        return classifier.embeddings(x.to(self.device))

    def _larger(self, known: Known[Kept], rows: Rows, n_classes: int) -> GrowingClassifier:
        """A copy of the network with the classes that are new among rows."""
        if n_classes == len(known.classes):
            return copy.deepcopy(known.classifier)
        new = rows.of(rows.y >= len(known.classes))
        return known.classifier.grown(new.embeddings, new.y.to(self.device), n_classes)

    def _train(
        self,
        classifier: GrowingClassifier,
        x: Tensor,
        y: Tensor,
        settings: ClassifierSettings,
        penalty: Penalty | None = None,
    ) -> None:
        """Train a network further, with the statistics of batch normalisation as they are."""
        alone = Processes(0, 1, torch.device(self.device))
        trainee = ClassifierTraining(classifier, x, y, settings, alone, penalty=penalty, batch_statistics=False)
        with TemporaryDirectory() as folder:
            _to_the_end(trainee, Path(folder), alone)
        classifier.eval()

    def _session_settings(
        self, name: str, defaults: Mapping[str, Any], given: Mapping[str, Any] | None
    ) -> ClassifierSettings:
        """A table of the settings of a later session."""
        for key, why in _GIVEN_OTHERWISE.items():
            if key in (given or {}):
                raise ValueError(f"{name}.{key} cannot be set: {why}")
        settings = section(name, ClassifierSettings, {"milestones": (), **defaults, **(given or {})})
        return replace(settings, validate_every=0, seed=self.seed)

    def _trained_base(self, x: Tensor, y: Tensor, aside: Tensor, n_classes: int) -> GrowingClassifier:
        options = dict(_BACKBONE if self.backbone is None else self.backbone)
        name = options.pop("name")
        seed = {"seed": self.seed} if draws_weights(name) else {}
        backbone = make_backbone(name, tuple(x.shape[1:]), **(seed | options))
        settings = self._base_settings
        classifier = self._train_base(SoftmaxNetwork(backbone, n_classes, seed=self.seed), x, y, aside, settings)
        if self.kind is SoftmaxNetwork:
            return classifier
        embeddings = self._embedded(classifier, x[~aside]).cpu()
        continued = self.kind.of_embeddings(classifier.cpu().backbone, embeddings, y[~aside], n_classes, seed=self.seed)
        slower = replace(settings, learning_rate=settings.learning_rate / 10)
        return self._train_base(continued, x, y, aside, slower)

    def _train_base(
        self, classifier: GrowingClassifier, x: Tensor, y: Tensor, aside: Tensor, settings: ClassifierSettings
    ) -> GrowingClassifier:
        alone = Processes(0, 1, torch.device(self.device))
        validation = (x[aside], y[aside]) if bool(aside.any()) else None
        if validation is None:
            settings = replace(settings, validate_every=0)
        trainee = ClassifierTraining(classifier, x[~aside], y[~aside], settings, alone, validation)
        with TemporaryDirectory() as folder:
            best = load_deep_classifier(_to_the_end(trainee, Path(folder), alone).best)
        assert isinstance(best, GrowingClassifier)
        return best.to(self.device)

    def _loaded_base(self, path: Path, x: Tensor, n_classes: int) -> GrowingClassifier:
        loaded = load_deep_classifier(path)
        if not isinstance(loaded, self.kind):
            raise ArtifactError(f"{path} holds a network {loaded.name!r}, {self.name} begins with {self.kind.name!r}")
        if loaded.n_classes != n_classes:
            raise ArtifactError(f"{path} knows {loaded.n_classes} classes, the base session has {n_classes}")
        _check_shape(tuple(x.shape[1:]), loaded.backbone.input_shape, f"as {path} takes")
        return loaded.to(self.device)

    def _check_order(self, classifier: GrowingClassifier, base: Rows, n_classes: int) -> None:
        """Refuse a network that would know the base rows if its classes were in another order."""
        with torch.no_grad():
            named = classifier.predictor()(base.embeddings).argmax(1).cpu()
        confusions = torch.bincount(base.y * n_classes + named, minlength=n_classes**2).view(n_classes, n_classes)
        right = int(confusions.diagonal().sum())
        best = int(confusions.numpy()[linear_sum_assignment(confusions.numpy(), maximize=True)].sum())
        if 2 * right < best:
            raise ArtifactError(
                f"{self.checkpoint} is right about {right} of {len(base.y)} rows of the base session, but would be "
                f"about {best} if its classes were in another order: it must learn them in that of their labels"
            )


def _to_the_end(trainee: ClassifierTraining, folder: Path, group: Processes) -> Trained:
    """One checkpoint, at the end: sessions are short."""
    settings = trainee.loop_settings()
    return train(trainee, replace(settings, checkpoint_every=settings.length), folder, group)


def _inputs(X: Any, shape: tuple[int, ...] | None) -> Tensor:
    """Rows as a finite tensor of bytes or float32."""
    values = np.asarray(X)
    if values.ndim < 2 or 0 in values.shape or values.dtype.kind not in "fiub":
        raise ValueError(
            f"X: expected rows of numbers (n, D) or images (n, channels, height, width), got shape {values.shape} and "
            f"type {values.dtype}."
        )
    if shape is not None:
        _check_shape(values.shape[1:], shape, "as in the base session")
    check_finite(values)
    return torch.from_numpy(values if values.dtype == np.uint8 else values.astype(np.float32))


def _check_shape(got: tuple[int, ...], expected: tuple[int, ...], why: str) -> None:
    if got != expected:
        raise ValueError(f"X: expected {describe(expected)}, {why}, got {describe(got)}.")
