"""What ``meta-evaluate`` and ``meta-compare`` share: from checkpoints and options to learners, data and protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from sureshot.cli import options
from sureshot.cli.console import note
from sureshot.data.settings_files import toml_value
from sureshot.plugins import offered_names

if TYPE_CHECKING:
    from sureshot.data.labelled import FewShotData
    from sureshot.meta.learners.base import ClassLearner
    from sureshot.meta.protocols import EpisodeProtocol
    from sureshot.meta.training.checkpoint import Checkpoint
    from sureshot.meta.training.config import TrainingConfig

USUAL_TASKS = 1000  # of out-of-episode detection, robustness and the temperature, as in the papers


@dataclass(frozen=True)
class LoadedLearner:
    """A checkpoint to be evaluated, whose learner is built when it is first asked for."""

    checkpoint: Checkpoint
    config: TrainingConfig

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> LoadedLearner:
        """Of a learner of classes."""
        from sureshot.meta.training.config import TrainingConfig

        return cls(checkpoint, TrainingConfig.from_dict(checkpoint.config))

    @cached_property
    def learner(self) -> ClassLearner:
        """In evaluation mode."""
        return self.checkpoint.build()

    @property
    def settings(self) -> dict[str, Any]:
        """Of the learner, by name; of a Gaussian process those that its preset does not say."""
        config = self.learner.config
        unsaid = {"options", "settings"} if "settings" in config else {"options", "preset", "kernel"}  # baselines
        return {key: value for key, value in config.items() if key not in unsaid} | config["options"]


@dataclass(frozen=True)
class EvaluationOptions:
    """The options of a command that tests learners: on which data and tasks, and what is measured."""

    on: Annotated[
        str | None,
        Option(
            "--on",
            metavar="NAME",
            help=f"The data, by default those of the training: {options.FEW_SHOT_SETS}; of learners of numbers "
            f"{' or '.join(options.DRAWN)}.",
        ),
    ] = None
    option: Annotated[
        list[str] | None, Option("--option", metavar="KEY=VALUE", help="Of the data set; may be repeated.")
    ] = None
    data: options.DataRoot = None
    split: Annotated[str, Option("--split", metavar="test|val", help="Whose classes to test on.")] = "test"
    way: Annotated[int | None, Option("--way", min=2, help="Classes of a task; by default as in training.")] = None
    shots: Annotated[
        int | None, Option("--shots", min=1, help="Labelled rows of each class; by default as in training.")
    ] = None
    queries: Annotated[int, Option("--queries", min=1, help="Rows of each class to classify.")] = 15
    tasks: Annotated[int, Option("--tasks", min=1, help="Tasks for accuracy and calibration, in 5 batches.")] = 3000
    out_of_episode: Annotated[
        int | None,
        Option(
            "--out-of-episode", min=0, help="Tasks for out-of-episode detection, 0 for none; 1000, or all if fewer."
        ),
    ] = None
    robustness: Annotated[
        int | None, Option("--robustness", min=0, help="Tasks of corrupted images, 0 for none; 1000, or all if fewer.")
    ] = None
    corrupted: Annotated[
        str, Option("--corrupted", metavar="both|query", help="Corrupt support and query images, or the query's.")
    ] = "both"
    seed: Annotated[int, Option("--seed", min=0, help="Of the tasks.")] = 0

    def check(self) -> None:
        """Refuse what is none of the names that there are, or no KEY=VALUE."""
        options.check_name("--split", self.split, "test, val")
        options.check_name("--corrupted", self.corrupted, "both, query")
        if self.on is not None:
            known = [options.FEW_SHOT_SETS, *options.DRAWN, *offered_names("data set")]
            options.check_name("--on", self.on, ", ".join(known))
        self.options_of_data()

    def options_of_data(self) -> dict[str, Any]:
        """As they were given."""
        return dict(map(_parsed, self.option or ()))

    def prepare(self, loaded: Sequence[LoadedLearner]) -> tuple[FewShotData, dict[str, Any]]:
        """The data, and the arguments of `sureshot.meta.evaluation.evaluate` beside the learner.

        What is not given shrinks with the number of tasks. Corruptions are for images, and left out for other data
        unless they were asked for.
        """
        protocol = self.protocol(loaded)
        data = self._load_data(loaded)
        # Those that a temperature is fitted on are never those that are tested on.
        classes, validation = (data.test, data.val) if self.split == "test" else (data.val, None)
        note(f"{classes.n_classes} {self.split} classes of {data.description}")
        usual = min(USUAL_TASKS, self.tasks)
        corrupted_tasks = usual if data.test.x.dim() == 4 else 0
        return data, {
            "data": classes,
            "validation": validation,
            "protocol": protocol,
            "n_tasks": self.tasks,
            "n_batches": min(5, self.tasks),
            "validation_tasks": usual,
            "out_of_episode": usual if self.out_of_episode is None else self.out_of_episode,
            "robustness": corrupted_tasks if self.robustness is None else self.robustness,
            "corrupted": self.corrupted,
            "seed": self.seed,
        }

    def protocol(self, loaded: Sequence[LoadedLearner]) -> EpisodeProtocol:
        """Way and shots as given, or as in training (the largest of a range), where all checkpoints agree."""
        from sureshot.meta.protocols import EpisodeProtocol

        trained = [one.config.episodes.to_protocol() for one in loaded]

        def common(option: str, given: int | None, found: list[int]) -> int:
            if given is None and len(set(found)) > 1:
                values = ", ".join(map(str, sorted(set(found))))
                raise ValueError(f"the checkpoints were trained with different {option[2:]} ({values}): give {option}")
            return found[0] if given is None else given

        return EpisodeProtocol(
            common("--way", self.way, [one.ways[1] for one in trained]),
            common("--shots", self.shots, [one.shot_range[1] for one in trained]),
            self.queries,
        )

    def _load_data(self, loaded: Sequence[LoadedLearner]) -> FewShotData:
        """The data set named, or the one that all checkpoints were trained on; its rows must fit every learner."""
        from sureshot.data.few_shot import DATASETS, load_few_shot, share_source
        from sureshot.networks.backbones import Backbone
        from sureshot.networks.backbones.base import describe

        own = [(one.config.data.name, dict(one.config.data.options)) for one in loaded]
        if self.on is None and any(other != own[0] for other in own):
            names = ", ".join(sorted({name for name, _ in own}))
            raise ValueError(
                f"the checkpoints were trained on different data, or with other options of it ({names}): name the set "
                "to test on with --on"
            )
        name = own[0][0] if self.on is None else self.on
        if name == own[0][0] and (package := loaded[0].checkpoint.artifact.header.get("dataset")):
            DATASETS.require(name, package)
        chosen = (own[0][1] if name == own[0][0] else {}) | self.options_of_data()
        data = load_few_shot(name, self.data, **chosen)
        for one, (trained_on, with_options) in zip(loaded, own, strict=True):
            same = trained_on == name and with_options == chosen
            alike = trained_on == name or share_source(_sets(trained_on, with_options), _sets(name, chosen))
            if alike and not same:
                _check_new(one, load_few_shot(trained_on, self.data, **with_options), data, self.split)
        shape = tuple(data.test.x.shape[1:])
        for one in loaded:
            backbone = one.learner.network
            if isinstance(backbone, Backbone) and backbone.input_shape != shape:
                raise ValueError(
                    f"{one.checkpoint.path} takes {describe(backbone.input_shape)}, but {name} has {describe(shape)}: "
                    "test on data like that of the training"
                )
        return data


def _sets(name: str, options: Mapping[str, Any]) -> str:
    """The names of a data set and of those that it is made of."""
    return " ".join([name, *(str(options[part]) for part in ("base", "novel") if part in options)])


def _check_new(one: LoadedLearner, trained: FewShotData, data: FewShotData, split: str) -> None:
    """Refuse to test a learner on classes that it was trained on, or that chose its checkpoint."""
    known = dict.fromkeys(trained.train.class_names, "trained on")
    chosen = dict.fromkeys(trained.val.class_names, "chosen by") | known
    for part, called, asked in ((data.test, "test", chosen), (data.val, "validation", known)):
        seen = [name for name in part.class_names if name in asked]
        if seen and (called == "validation" or split == "test"):
            raise ValueError(
                f"{one.checkpoint.path} was {asked[seen[0]]} {len(seen)} of the {len(part.class_names)} {called} "
                f"classes ({seen[0]!r}, say): the set is split in another way than in its training, or has the same "
                "classes"
            )


def _parsed(option: str) -> tuple[str, Any]:
    key, separator, text = option.partition("=")
    if not separator or not key.strip():
        raise ValueError(f"--option {option}: expected KEY=VALUE, for instance --option rotations=true")
    return key.strip(), toml_value(text)
