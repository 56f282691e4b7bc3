"""Batch statistics and the centre of embeddings follow the inputs they are fitted to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.meta.episodes import as_inputs
from sureshot.meta.evaluation.passes import embed_set
from sureshot.meta.learners.base import Learner
from sureshot.meta.training import TrainingConfig
from sureshot.meta.training.assembly import build_learner
from sureshot.meta.training.normalisation import fit_normalisation

NAMES = ("ove_mean_field_pl", "ove_mean_field_transfer")


def fitted(learner: Learner, x: torch.Tensor, seed: int = 0) -> Learner:
    fit_normalisation(learner, x, torch.Generator().manual_seed(seed))
    return learner


@pytest.fixture(params=NAMES)
def learner(request: pytest.FixtureRequest, configure: Callable[..., TrainingConfig], data: FewShotData) -> Learner:
    return build_learner(configure(learner={"name": request.param}), data.train)


def test_statistics_are_those_of_the_inputs(learner: Learner, data: FewShotData) -> None:
    fitted(learner, data.val.x)  # 60 rows make one batch
    first = learner.backbone.blocks[0]  # type: ignore[union-attr, index]
    with torch.no_grad():
        maps = first.convolution(as_inputs(data.val.x))
    torch.testing.assert_close(first.normalisation.running_mean, maps.mean((0, 2, 3)))
    torch.testing.assert_close(first.normalisation.running_var, maps.var((0, 2, 3)))
    assert first.normalisation.momentum == 0.1


def test_embeddings_in_use_are_centred_and_those_in_training_are_not(learner: Learner, data: FewShotData) -> None:
    fitted(learner, data.val.x)
    torch.testing.assert_close(embed_set(learner, data.val.x).mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    learner.train()
    assert (learner.embed(as_inputs(data.val.x)[None]) >= 0).all()  # as the last rectifier leaves them


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_kept_and_the_order_of_the_inputs_does_not_matter(
    learner: Learner, data: FewShotData, training: bool
) -> None:
    learner.train(training)
    before = embed_set(fitted(learner, data.val.x), data.test.x)
    assert learner.training is training
    assert all(module.training is training for module in learner.modules())
    shuffled = data.val.x[torch.randperm(len(data.val.x), generator=torch.Generator().manual_seed(7))]
    torch.testing.assert_close(embed_set(fitted(learner, shuffled, seed=3), data.test.x), before, atol=1e-4, rtol=1e-3)


def test_without_batch_normalisation_there_is_the_centre() -> None:
    config = TrainingConfig.from_dict(
        {"data": {"name": "tiny"}, "backbone": {"name": "identity"}, "learner": {"name": NAMES[0]}}
    )
    vectors = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    learner = build_learner(config, LabelledSet(vectors, torch.arange(20) % 4, ("a", "b", "c", "d")))
    fitted(learner, vectors)
    torch.testing.assert_close(embed_set(learner, vectors), vectors - vectors.mean(0), atol=1e-3, rtol=1e-4)


def test_learners_without_a_centre_say_so(data: FewShotData, configure: Callable[..., TrainingConfig]) -> None:
    learner = build_learner(configure(), data.train)
    assert not learner.fits_normalisation
    with pytest.raises(ValueError, match="ProtoNet does not centre its embeddings"):
        learner.set_centre(torch.zeros(4))
