"""Which cells the campaigns have, and with which settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import clinc150_transfer
from experiments.campaigns.archive import kept
from experiments.campaigns.few_shot import FewShotCell
from experiments.campaigns.grids import (
    budget_episodes,
    check_grid,
    image_cell,
    mean_field_exceptions,
)
from experiments.campaigns.images import CAMPAIGNS, OMNIGLOT_CHOICE, ImageCampaignConfig
from experiments.registry import get_experiment
from sureshot.meta.learners import LEARNER_NAMES, make_learner
from sureshot.meta.learners.registry import learns_base_classes

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "cells"


def by_key(name: str, **settings: object) -> dict[str, FewShotCell]:
    cells = CAMPAIGNS[name].cells(ImageCampaignConfig(**settings))  # type: ignore[arg-type]
    keyed = {cell.key: cell for cell in cells}
    assert len(keyed) == len(cells), "keys are unique"
    return keyed


def test_budgets_are_the_published_ones_and_a_quarter() -> None:
    assert [budget_episodes("full", shots) for shots in (1, 5)] == [60_000, 40_000]
    assert [budget_episodes("standard", shots) for shots in (1, 5)] == [15_000, 10_000]
    with pytest.raises(ValueError, match="did you mean 'full'"):
        budget_episodes("ful", 1)
    with pytest.raises(ValueError, match=r"shots must be one of 1, 5.*got 3"):
        budget_episodes("full", 3)
    with pytest.raises(ValueError, match="no learner 'protonets'"):
        check_grid("full", ("dkt", "protonets"), ())
    with pytest.raises(ValueError, match="no kernel 'cosin'"):
        check_grid("full", (), ("rbf", "cosin"))


@pytest.mark.parametrize("name", sorted(CAMPAIGNS))
def test_every_campaign_has_every_learner_at_one_and_five_shots(name: str) -> None:
    cells = by_key(name)
    # On the benchmarks of Ke et al. two learners come at temperature 1 and under our settings, too; one has two forms.
    beside = 0 if CAMPAIGNS[name].exceptions is None else 2 * 2
    assert len(cells) == 2 * (len(LEARNER_NAMES) + beside + 1)
    main = [(cell.labels["learner"], cell.labels["shots"]) for cell in list(cells.values())[: 2 * len(LEARNER_NAMES)]]
    assert len(set(main)) == 2 * len(LEARNER_NAMES)
    for cell in cells.values():
        shots = cell.labels["shots"]
        assert cell.training.learner.name == cell.labels["learner"]
        assert cell.training.episodes.shots == shots
        assert cell.training.episodes.queries == (15 if name.startswith("omniglot") and shots == 5 else 16)
        [examination] = cell.examinations
        assert (examination.protocol.ways, examination.protocol.shot_range) == ((5, 5), (shots, shots))
        assert examination.least_errors == (beside > 0)
        slow = "gibbs" in str(cell.labels["learner"]) or cell.labels["learner"] == "abml"
        secondary = 200 if slow else 1000
        assert (examination.n_tasks, examination.out_of_episode, examination.robustness) == (3000, secondary, secondary)
    assert get_experiment(name).needs_data


def test_learners_by_gradient_are_set_as_in_the_tables() -> None:
    characters, photographs = (by_key(name) for name in ("omniglot-choice", "miniimagenet32"))
    maml = "maml-paper-cosine-5shot-seed0-standard-bfloat16"
    assert characters[maml].training.learner.options == {"inner_steps": 1, "inner_rate": 0.1}
    assert photographs[maml].training.learner.options == {}
    chaser = photographs["bayesian_maml-paper-chaser-cosine-1shot-seed0-standard-bfloat16"]
    assert chaser.training.learner.options == {"objective": "chaser"}
    assert chaser.labels["preset"] == "paper, chaser"


def test_kernels_are_for_gaussian_processes_only() -> None:
    cells = by_key("cub", kernels=("linear", "rbf"), shots=(1,), seeds=(0, 1))
    assert sum(cell.labels["kernel"] == "linear" for cell in cells.values()) == 2 * (10 + 2 * 2)
    assert sum(cell.labels["kernel"] == "rbf" for cell in cells.values()) == 2 * 10
    assert sum(cell.labels["kernel"] == "cosine" for cell in cells.values()) == 2 * 9
    assert "protonet-paper-cosine-1shot-seed1-standard-bfloat16" in cells
    assert "protonet-paper-cosine-1shot-seed1-standard-bfloat16" in by_key("cub", seeds=(1,))


@pytest.mark.parametrize(
    ("name", "learner", "shots", "episodes", "options"),
    [
        ("cub", "cdkt_ml", 1, 60_000, {}),
        ("cub", "cdkt_pl", 5, 80_000, {}),
        ("miniimagenet", "cdkt_ml", 5, 40_000, {}),
        ("miniimagenet", "cdkt_pl", 1, 80_000, {}),
        ("miniimagenet", "cdkt_pl", 5, 80_000, {"temperature": 0.5}),
        ("miniimagenet32", "cdkt_pl", 5, 80_000, {"temperature": 0.5}),
        ("miniimagenet-cub", "cdkt_ml", 5, 80_000, {}),
        ("miniimagenet-cub", "cdkt_pl", 1, 80_000, {"prediction_prior_mean": -5.0}),
        ("miniimagenet-cub", "cdkt_pl", 5, 80_000, {"temperature": 0.5, "prediction_prior_mean": -5.0}),
        ("miniimagenet-cub", "ove_gibbs_pl", 5, 40_000, {}),
        ("omniglot-choice", "cdkt_pl", 5, 40_000, {"prediction_prior_mean": -5.0}),
        ("omniglot-choice", "cdkt_ml", 1, 60_000, {}),
    ],
)
def test_the_papers_exceptions(name: str, learner: str, shots: int, episodes: int, options: dict[str, float]) -> None:
    full = by_key(name, budget="full")[f"{learner}-paper-cosine-{shots}shot-seed0-full-bfloat16"].training
    assert full.training.episodes == episodes
    assert full.learner.options == options
    standard = by_key(name)[f"{learner}-paper-cosine-{shots}shot-seed0-standard-bfloat16"].training
    assert standard.training.episodes == episodes // 4
    assert full.training.learning_rate_kernel == (1e-4 if learner.startswith("cdkt") else 1e-3)


def test_our_own_preset_has_none_of_them() -> None:
    cell = image_cell(
        "miniimagenet-cub",
        "cdkt_pl",
        shots=5,
        seed=0,
        budget="full",
        preset="recommended",
        transfer=True,
        benchmark="miniimagenet-cub",
    )
    assert cell.training.training.episodes == 40_000
    assert cell.training.learner.options == {}
    assert mean_field_exceptions(None, "cdkt_pl", 5) == (False, {})


@pytest.mark.parametrize(("name", "long"), [("miniimagenet32", ["cdkt_pl"]), ("miniimagenet-cub", ["cdkt_pl"])])
def test_temperature_one_and_our_settings_beside_the_papers(name: str, long: list[str]) -> None:
    cells = by_key(name, learners=("cdkt_ml", "cdkt_pl", "dkt"), shots=(5,), budget="full", precisions=("float32",))
    assert len(cells) == 3 + 2 * 2
    for learner in ("cdkt_ml", "cdkt_pl"):
        one = cells[f"{learner}-paper-temperature-1-cosine-5shot-seed0-full"]
        assert one.labels["preset"] == "paper, temperature 1"
        paper = cells[f"{learner}-paper-cosine-5shot-seed0-full"].preset_values()
        assert one.preset_values() == paper | {"temperature": 1.0, "prediction_prior_mean": 0.0}
        assert one.training.training.episodes == (80_000 if learner in long else 40_000)
        ours = cells[f"{learner}-recommended-cosine-5shot-seed0-full"]
        assert ours.labels["preset"] == "recommended"
        assert ours.training.training.episodes == 40_000
        assert not ours.training.learner.options


def test_the_options_of_every_cell_are_taken() -> None:
    """By the learner's maker, on a backbone that costs nothing."""
    from sureshot.networks.backbones import make_backbone

    for name in CAMPAIGNS:
        for cell in by_key(name).values():
            settings = cell.training.learner
            bases = {"n_base_classes": 3} if learns_base_classes(settings.name, settings.preset) else {}
            make_learner(
                settings.name,
                make_backbone("conv4", (1, 16, 16), **cell.training.backbone.options),
                preset=settings.preset,
                kernel=settings.kernel,
                **settings.options,
                **bases,
            )


COLD = "its preset had another warm_start, covariance_first"
"""What the page says of results of the logistic-softmax by mean field with cold steps, until they are made again."""


def test_results_that_were_made_still_count() -> None:
    """Settings that made the results in the repository are those of the campaign's cells."""
    cells = by_key("omniglot-choice") | by_key("omniglot-choice", precisions=("float32",))
    made = {key: record for key in cells if (record := kept(RESULTS / OMNIGLOT_CHOICE.name, key)) is not None}
    assert "protonet-paper-cosine-5shot-seed0-standard" in made
    for key, record in made.items():
        assert record["labels"] == cells[key].labels
        assert cells[key].stale(record) in (None, COLD if key.startswith("cdkt_") else None), key


def test_the_grid_of_embeddings() -> None:
    settings = clinc150_transfer.Clinc150TransferConfig(seeds=(0, 1))
    cells = clinc150_transfer.campaign_cells(settings)
    assert len({cell.key for cell in cells}) == len(cells)
    # Seventeen learners at 5 ways, 13 of fixed inference at 75; then ten Gaussian processes with six other kernels.
    assert len(cells) == 2 * 2 * (17 + 13 + 10 * 6)
    assert not any(cell.labels["learner"] == "relationnet" for cell in cells)
    assert {cell.training.data.options["seed"] for cell in cells} == {0, 1}
    many = [cell for cell in cells if cell.examinations[0].protocol.ways == (75, 75)]
    assert {cell.labels["kernel"] for cell in many} == {"cosine"}
    assert {cell.labels["preset"] for cell in many if cell.labels["learner"] == "dkt"} == {"recommended"}
    assert not any("gibbs" in str(cell.labels["learner"]) for cell in many)


def test_gradient_learners_are_as_published_on_images_and_ours_on_embeddings() -> None:
    images = by_key("miniimagenet32", learners=("maml", "abml", "relationnet"), shots=(1,))
    options = {cell.labels["learner"]: cell.training.backbone.options for cell in images.values()}
    assert options == {"maml": {}, "abml": {"n_filters": 32}, "relationnet": {"n_poolings": 2}}
    assert {cell.labels["preset"] for cell in images.values()} == {"paper"}
    settings = clinc150_transfer.Clinc150TransferConfig(learners=("maml", "bayesian_maml"))
    cells = clinc150_transfer.campaign_cells(settings)
    assert {cell.labels["preset"] for cell in cells} == {"recommended"}
    assert all("inner_rate" in cell.training.learner.options for cell in cells)


def test_learners_without_a_kernel_have_one_cell_for_all() -> None:
    first, second = (
        clinc150_transfer.campaign_cells(
            clinc150_transfer.Clinc150TransferConfig(learners=("protonet", "dkt"), kernels=(kernel,), ways=(5,))
        )
        for kernel in ("cosine", "rbf")
    )
    assert {cell.key for cell in first} & {cell.key for cell in second} == {
        cell.key for cell in first if cell.labels["learner"] == "protonet"
    }
