"""Few-shot learners on images: one campaign for each benchmark of the papers, and for those of the data at hand.

What distinguishes two campaigns is their data and what the papers say about it, so each is an `ImageCampaign` and
nothing else. To add one, define it here and name it in `experiments.registry`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from experiments.campaigns.cells import CampaignConfig, finished
from experiments.campaigns.few_shot import FewShotCell, Load, data_loader, run_few_shot
from experiments.campaigns.grids import (
    MEAN_FIELD,
    SAMPLED_TASKS,
    TEMPERATURE_ONE,
    VARIANTS,
    check_grid,
    image_cell,
)
from experiments.campaigns.report import campaign_outcome
from experiments.experiment import Experiment, Outcome, Progress, configure
from sureshot.meta.learners import GP_LEARNER_NAMES, LEARNER_NAMES
from sureshot.meta.protocols import TRAINING_PRESETS


@dataclass(frozen=True)
class ImageCampaignConfig(CampaignConfig):
    """Settings."""

    budget: str = "standard"  # training episodes; see `experiments.campaigns.grids` ("standard", "full")
    learners: tuple[str, ...] = LEARNER_NAMES
    kernels: tuple[str, ...] = ("cosine",)  # of the Gaussian processes; the other learners have none and are run once
    shots: tuple[int, ...] = (5, 1)
    seeds: tuple[int, ...] = (0,)
    # of the backbone's arithmetic: results in any of them are shown, what has none is trained in the first
    precisions: tuple[str, ...] = ("bfloat16", "float32")


@dataclass(frozen=True)
class ImageCampaign:
    """Data, and what the papers say about it."""

    name: str  # of the experiment
    title: str
    summary: str  # one line for the list of experiments
    introduction: str  # what the classes and images are
    data: str  # one of `sureshot.data.few_shot.FEW_SHOT_NAMES`
    data_options: Mapping[str, Any] = field(default_factory=dict)
    transfer: bool = False  # whether test classes come from another data set
    few_rows: bool = False  # 15 instead of 16 queries of each class in 5-shot training, as a class has 20 rows
    published: str | None = None  # the papers' benchmark whose numbers are shown; see `experiments.campaigns.published`
    # the benchmark of Ke et al. (2023) whose exceptions hold; see `grids.mean_field_exceptions`.
    exceptions: str | None = None
    differences: tuple[str, ...] = ()  # from the papers, one sentence each

    def cell(self, learner: str, *, shots: int, **options: Any) -> FewShotCell:
        """A cell of the campaign's data and protocol; see `image_cell` for the options."""
        return image_cell(
            self.data,
            learner,
            shots=shots,
            transfer=self.transfer,
            benchmark=self.exceptions,
            queries=15 if self.few_rows and shots == 5 else 16,
            data_options=dict(self.data_options),
            **options,
        )

    def cells(self, settings: ImageCampaignConfig, precision: str | None = None) -> list[FewShotCell]:
        """The grid in the order in which it is run: every learner with the first kernel, then the other kernels.

        With the first kernel come `VARIANTS`, and on the benchmarks of Ke et al. (2023) their learners at temperature 1
        and as recommended here. In the first of the settings' precisions or a given one.
        """

        common = {"budget": settings.budget, "precision": precision or settings.precisions[0]}
        grid = [
            self.cell(learner, kernel=kernel, shots=shots, seed=seed, **common)
            for place, kernel in enumerate(settings.kernels)
            for seed in settings.seeds
            for shots in settings.shots
            for learner in settings.learners
            if place == 0 or learner in GP_LEARNER_NAMES
        ]
        others: list[dict[str, Any]] = [{"change": ("temperature 1", TEMPERATURE_ONE)}, {"preset": "recommended"}]
        variants = [(learner, {"change": change}) for learner, change in VARIANTS.items()]
        if self.exceptions is not None:
            variants += [(learner, options) for options in others for learner in MEAN_FIELD]
        beside = [
            self.cell(learner, kernel=settings.kernels[0], shots=shots, seed=seed, **common, **options)
            for seed in settings.seeds
            for shots in settings.shots
            for learner, options in variants
            if learner in settings.learners
        ]
        return grid + beside

    def records(
        self, cells: Sequence[FewShotCell], settings: CampaignConfig, load: Load, progress: Progress
    ) -> list[dict[str, Any]]:
        """Run those cells that have no result, if wanted, and collect the results of all that have one."""
        return settings.records(self.name, cells, partial(run_few_shot, load), progress)

    def run(self, *, load: Load, progress: Progress, **options: Any) -> Outcome:
        """Run the missing cells, and make the tables of all that are there."""
        settings = configure(ImageCampaignConfig, options)
        check_grid(settings.budget, settings.learners, settings.kernels)
        if len(set(settings.precisions)) < len(settings.precisions):
            raise ValueError(f"precisions must differ, got {list(settings.precisions)}")
        results = Path(settings.results) / self.name
        cells: list[FewShotCell] = []
        for same_but_precision in zip(*(self.cells(settings, name) for name in settings.precisions), strict=True):
            done = [cell for cell in same_but_precision if finished(cell, results) is not None]
            cells += done or same_but_precision[:1]
        records = self.records(cells, settings, load, progress)
        return campaign_outcome(
            title=self.title,
            introduction=f"{self.introduction} {_PROTOCOL}",
            records=records,
            cells=cells,
            results=results,
            settings=settings,
            seeds=settings.seeds,
            published=self.published,
            differences=(*self.differences, _BUDGETS, _PRECISION),
            recommended="ove_mean_field_transfer",
        )

    def experiment(self) -> Experiment:
        """The campaign as an experiment on the data below a root."""

        def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
            return self.run(load=data_loader(data_root), progress=progress, **options)

        return Experiment(self.name, self.summary, True, run)


_AS_RELEASED = TRAINING_PRESETS["one-vs-each-5shot-released-code"].data_options
_PROTOCOL = (
    "Conv4, 5-way; 15 queries of each class; 3000 test tasks in 5 batches; 1000 for out-of-episode detection and for "
    f"each corruption (the first {SAMPLED_TASKS} of these for Gibbs learners and ABML, for time). Every learner "
    "meets the same tasks."
)
_BUDGETS = (
    "The papers train for 60,000 (1-shot) and 40,000 (5-shot) episodes; the budget of every cell is in the table, "
    "`standard` is a quarter."
)
_PRECISION = "Backbones compute in the precision that the table names; where both are there, they show what it changes."
_EXCEPTIONS = (
    "The logistic-softmax by mean field (`cdkt_*`) has the exceptions of Ke et al. (2023) on this benchmark: longer "
    "training (80,000 episodes in full), another temperature, another prior mean, where they state them. It is there "
    "under our settings, too (`recommended`)."
)
_AUGMENTATION = "Training images are not augmented; the papers do not say whether theirs were."
_CHARACTERS = (
    "Meta-training on the 1597 characters of Omniglot that are not Latin (no rotations, as in the released code of the "
    "papers)"
)
_NO_CDKT = (
    "Ke et al. (2023) have no results from Omniglot. Their learners (`cdkt_*`) have the settings of the paper's text "
    "(temperature 0.2) and the budget of the others; of their other transfer only the prior mean -5 in use is kept."
)
_MAML = (
    "MAML has one inner step of 0.1, as in the code of the papers' tables, and a step of the optimiser after every "
    "task, like all learners here; that code takes one after 32."
)
_FEW_DRAWINGS = "15 queries of each class in 5-shot training, as a character has 20 drawings."

OMNIGLOT_CHOICE = ImageCampaign(
    name="omniglot-choice",
    title="Few-shot learning from Omniglot to CHoiCe",
    summary="eighteen few-shot learners from Omniglot to CHoiCe (a campaign of hours)",
    introduction=(
        f"{_CHARACTERS}; checkpoints are chosen on CHoiCe's classes of even number (29), tests are on those of odd "
        "number (31). 28 x 28 pixels."
    ),
    data="omniglot-choice",
    data_options=_AS_RELEASED["omniglot-choice"],
    transfer=True,
    few_rows=True,
    published="omniglot-emnist",
    differences=(
        "CHoiCe stands in for EMNIST: the same 62 classes, other and harder handwriting; the published numbers are no "
        "yardstick for these.",
        _FEW_DRAWINGS,
        _NO_CDKT,
        _MAML,
        "Defocus radii are scaled from 84 to 28 pixels.",
    ),
)

OMNIGLOT_EMNIST = ImageCampaign(
    name="omniglot-emnist",
    title="Few-shot learning from Omniglot to EMNIST",
    summary="eighteen few-shot learners from Omniglot to EMNIST (a campaign of hours; needs EMNIST)",
    introduction=(
        f"{_CHARACTERS}; checkpoints are chosen on EMNIST's classes of even number (31), tests are on those of odd "
        "number (31), images of its test part. 28 x 28 pixels."
    ),
    data="omniglot-emnist",
    data_options=_AS_RELEASED["omniglot-emnist"],
    transfer=True,
    few_rows=True,
    published="omniglot-emnist",
    differences=(
        _FEW_DRAWINGS,
        "Defocus radii are scaled from 84 to 28 pixels.",
        _NO_CDKT,
        _MAML,
    ),
)

CUB = ImageCampaign(
    name="cub",
    title="Few-shot learning of birds: CUB-200-2011",
    summary="eighteen few-shot learners on CUB (a campaign of days on a CPU; needs CUB-200-2011)",
    introduction="CUB-200-2011, 100 classes to train on, 50 for choosing checkpoints, 50 for tests. 84 x 84 pixels.",
    data="cub",
    published="cub",
    exceptions="cub",
    differences=(_EXCEPTIONS, _AUGMENTATION),
)

MINIIMAGENET = ImageCampaign(
    name="miniimagenet",
    title="Few-shot learning on mini-ImageNet",
    summary="eighteen few-shot learners on mini-ImageNet (a campaign of days on a CPU; needs mini-ImageNet)",
    introduction="mini-ImageNet, 64, 16 and 20 classes of Ravi & Larochelle (2017). 84 x 84 pixels.",
    data="miniimagenet",
    published="miniimagenet",
    exceptions="miniimagenet",
    differences=(_EXCEPTIONS, _AUGMENTATION),
)

MINIIMAGENET_CUB = ImageCampaign(
    name="miniimagenet-cub",
    title="Few-shot learning from mini-ImageNet to birds",
    summary="eighteen few-shot learners from mini-ImageNet to CUB (a campaign of days on a CPU; needs both)",
    introduction=(
        "Meta-training on all 100 classes of mini-ImageNet, as in the released code of the papers; checkpoints are "
        "chosen on 50 classes of CUB-200-2011, tests are on 50 others. 84 x 84 pixels."
    ),
    data="miniimagenet-cub",
    data_options=_AS_RELEASED["miniimagenet-cub"],
    transfer=True,
    published="miniimagenet-cub",
    exceptions="miniimagenet-cub",
    differences=(_EXCEPTIONS, _AUGMENTATION),
)

MINIIMAGENET32 = ImageCampaign(
    name="miniimagenet32",
    title="Few-shot learning on mini-ImageNet at 32 pixels",
    summary="eighteen few-shot learners on mini-ImageNet at 32 x 32 (a campaign of a day)",
    introduction=(
        "mini-ImageNet, 64, 16 and 20 classes of Ravi & Larochelle (2017), 100 images of each class for choosing "
        "checkpoints and for tests. 32 x 32 pixels, so Conv4 has 256 features."
    ),
    data="miniimagenet32",
    published="miniimagenet",
    exceptions="miniimagenet",
    differences=(
        "32 x 32 pixels instead of 84 x 84, and fewer test images: the published numbers are no yardstick for these.",
        _EXCEPTIONS,
        "Defocus radii are scaled from 84 to 32 pixels.",
        _AUGMENTATION,
    ),
)

CAMPAIGNS: Mapping[str, ImageCampaign] = {
    campaign.name: campaign
    for campaign in (OMNIGLOT_CHOICE, OMNIGLOT_EMNIST, CUB, MINIIMAGENET, MINIIMAGENET_CUB, MINIIMAGENET32)
}
"""All campaigns on images, by name."""

EXPERIMENTS: Mapping[str, Experiment] = {name: campaign.experiment() for name, campaign in CAMPAIGNS.items()}
