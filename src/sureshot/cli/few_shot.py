"""What ``meta-evaluate`` and ``meta-compare`` share: from checkpoints and options to learners, data and protocol."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sureshot.data.labelled import FewShotData, LabelledSet
    from sureshot.meta.episodes import EpisodeProtocol
    from sureshot.meta.learners import EmbeddingLearner
    from sureshot.meta.training import TrainingConfig

USUAL_TASKS = 1000  # of out-of-episode detection and robustness, as in the papers


@dataclass(frozen=True)
class Loaded:
    """A checkpoint ready to be evaluated."""

    path: str
    learner: EmbeddingLearner
    config: TrainingConfig
    episodes: int

    @property
    def settings(self) -> dict[str, Any]:
        """Of the learner, by name; of a Gaussian process those that its preset does not say."""
        config = self.learner.config
        unsaid = {"options", "settings"} if "settings" in config else {"options", "preset", "kernel"}  # baselines
        return {key: value for key, value in config.items() if key not in unsaid} | config["options"]


def load(path: Path) -> Loaded:
    """The learner of a checkpoint, or of the best checkpoint of a run's folder.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, something else, or of another architecture.
    """
    from sureshot.meta.training import TrainingConfig, load_checkpoint

    checkpoint = load_checkpoint(path)
    return Loaded(checkpoint.path, checkpoint.build(), TrainingConfig.from_dict(checkpoint.config), checkpoint.episodes)


def load_data(
    loaded: Sequence[Loaded], on: str | None, options: Sequence[str] | None, root: Path | None
) -> FewShotData:
    """The data set named, or the one that all checkpoints were trained on; its rows must fit every learner.

    Raises
    ------
    ValueError
        If the checkpoints disagree, an option is no KEY=VALUE, the data is unknown or missing, or a learner takes
        rows of another shape.
    """
    from sureshot.data.few_shot import load_few_shot
    from sureshot.networks.backbones import Backbone
    from sureshot.networks.backbones.base import describe

    own = [(one.config.data.name, dict(one.config.data.options)) for one in loaded]
    if on is None and any(other != own[0] for other in own):
        names = ", ".join(sorted({name for name, _ in own}))
        raise ValueError(
            f"the checkpoints were trained on different data, or with other options of it ({names}): name the set to "
            "test on with --on"
        )
    name = own[0][0] if on is None else on
    chosen = (own[0][1] if name == own[0][0] else {}) | dict(map(_parsed, options or ()))
    data = load_few_shot(name, root, **chosen)
    for one, (trained_on, with_options) in zip(loaded, own, strict=True):
        if trained_on == name and with_options != chosen:
            _check_new(one, load_few_shot(name, root, **with_options), data)
    shape = tuple(data.test.x.shape[1:])
    for one in loaded:
        backbone = one.learner.backbone
        if isinstance(backbone, Backbone) and backbone.input_shape != shape:
            raise ValueError(
                f"{one.path} takes {describe(backbone.input_shape)}, but {name} has {describe(shape)}: "
                "test on data like that of the training"
            )
    return data


def _check_new(one: Loaded, trained: FewShotData, data: FewShotData) -> None:
    """Refuse to test a learner on what it was trained on: the same set, split in another way."""
    known = set(trained.train.class_names)
    for part, split in ((data.test, "test"), (data.val, "validation")):
        seen = [name for name in part.class_names if name in known]
        if seen:
            raise ValueError(
                f"{one.path} was trained on {len(seen)} of the {len(part.class_names)} {split} classes ({seen[0]!r}, "
                "say): with these options the set is split in another way than in its training"
            )


def split_of(data: FewShotData, split: str) -> tuple[LabelledSet, LabelledSet | None]:
    """The classes to test on, and those to fit a temperature on, which are never the same.

    Raises
    ------
    ValueError
        If there is no such split.
    """
    from sureshot.data.checks import near

    if split == "test":
        return data.test, data.val
    if split == "val":
        return data.val, None
    raise ValueError(f"--split: expected test or val, got {split!r}{near(split, ('test', 'val'))}")


def protocol_of(loaded: Sequence[Loaded], way: int | None, shots: int | None, queries: int) -> EpisodeProtocol:
    """Way and shots as given, or as in training (the largest of a range).

    Raises
    ------
    ValueError
        If they are not given and the checkpoints disagree.
    """
    from sureshot.meta.episodes import EpisodeProtocol

    trained = [one.config.episodes.to_protocol() for one in loaded]

    def common(option: str, given: int | None, found: list[int]) -> int:
        if given is None and len(set(found)) > 1:
            values = ", ".join(map(str, sorted(set(found))))
            raise ValueError(f"the checkpoints were trained with different {option[2:]} ({values}): give {option}")
        return found[0] if given is None else given

    return EpisodeProtocol(
        common("--way", way, [one.ways[1] for one in trained]),
        common("--shots", shots, [one.shot_range[1] for one in trained]),
        queries,
    )


def evaluation_options(
    data: FewShotData, tasks: int, out_of_episode: int | None, robustness: int | None, corrupted: str, seed: int
) -> dict[str, Any]:
    """Options of `sureshot.meta.evaluation.evaluate`; what is not given shrinks with the number of tasks.

    Corruptions are for images, and left out for other data unless they were asked for.
    """
    usual = min(USUAL_TASKS, max(tasks, 0))
    if robustness is None:
        robustness = usual if data.test.x.dim() == 4 else 0
    return {
        "n_tasks": tasks,
        "n_batches": max(1, min(5, tasks)),
        "out_of_episode": usual if out_of_episode is None else out_of_episode,
        "robustness": robustness,
        "corrupted": corrupted,
        "seed": seed,
    }


def _parsed(option: str) -> tuple[str, Any]:
    key, separator, text = option.partition("=")
    if not separator or not key.strip():
        raise ValueError(f"--option {option}: expected KEY=VALUE, for instance --option rotations=true")
    try:
        return key.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), text
