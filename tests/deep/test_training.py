"""Epochs, rows kept aside, augmentation, groups of parameters, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sureshot.deep import (
    ClassifierSettings,
    ClassifierTraining,
    SoftmaxNetwork,
    held_out_rows,
    load_deep_classifier,
    random_crops,
    random_flips,
)
from sureshot.networks import Processes, train
from sureshot.networks.backbones import make_backbone
from sureshot.persistence import ArtifactError, save_artifact
from tests.deep.digits import network

ALONE = Processes(0, 1, torch.device("cpu"))
SETTINGS = ClassifierSettings(epochs=3, batch_size=4, validate_every=0, milestones=(1, 2), weight_decay=0.1)


def trainee(settings: ClassifierSettings = SETTINGS, n: int = 10) -> ClassifierTraining:
    x = torch.arange(n * 3, dtype=torch.float32).reshape(n, 3)
    backbone = make_backbone("linear", (3,))
    return ClassifierTraining(SoftmaxNetwork(backbone, 2), x, torch.arange(n) % 2, settings, ALONE)


def test_an_epoch_is_whole_batches_of_different_rows() -> None:
    training = trainee()
    assert (training.units_per_step, training.rows_per_epoch, training.loop_settings().length) == (4, 8, 24)
    epochs = [torch.cat([training._batch(2 * epoch + place) for place in range(2)]) for epoch in range(3)]
    for rows in epochs:
        assert len(rows.unique()) == 8
    assert not torch.equal(epochs[0], epochs[1])
    assert torch.equal(training._batch(0), epochs[0][:4])  # whatever was asked in between
    assert [training.learning_rate_factor(units) for units in (0, 4, 8, 16)] == pytest.approx([1, 1, 0.1, 0.01])
    assert trainee(n=3).units_per_step == 3


def test_a_run_goes_on_with_its_rows_only(tmp_path: Path) -> None:
    first, longer = trainee(), trainee(replace(SETTINGS, epochs=4))
    train(first, first.loop_settings(), tmp_path, ALONE)
    longer._x += 1
    others = ClassifierTraining(longer.classifier, longer._x, longer._y, longer.settings, ALONE)
    with pytest.raises(ValueError, match="the rows were others then"):
        train(others, others.loop_settings(), tmp_path, ALONE)
    again = trainee(replace(SETTINGS, epochs=4))
    train(again, again.loop_settings(), tmp_path, ALONE)


def test_kernels_have_a_rate_of_their_own_and_no_weight_decay() -> None:
    settings = replace(SETTINGS, learning_rate=0.2, own_learning_rate=0.01)
    tree = network("class_tree")
    x = torch.zeros(12, 64)
    groups = ClassifierTraining(tree, x, torch.arange(12) % 10, settings, ALONE).parameter_groups()
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.2, 0.1), (0.01, 0.0)]
    assert sum(len(group["params"]) for group in groups) == len(list(tree.parameters()))
    assert {id(p) for p in groups[1]["params"]} == {id(p) for p in tree.own_parameters()}


def test_the_backbone_may_compute_in_bfloat16() -> None:
    """Products are rounded, weights and embeddings are not."""
    training = trainee(replace(SETTINGS, precision="bfloat16"))
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    rounded, exact = training.classifier.encoded(x), training.classifier.backbone(x)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0.02)
    training.losses(0, slice(0, 4), torch.Generator()).mean().backward()
    assert {p.grad.dtype for p in training.module.parameters() if p.grad is not None} == {torch.float32}
    with pytest.raises(ValueError, match="precision must be 'float32' or 'bfloat16', got 'half'"):
        replace(SETTINGS, precision="half")  # type: ignore[arg-type]


def test_a_penalty_is_added_and_meets_the_same_embeddings() -> None:
    x = torch.randn(6, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    settings = replace(SETTINGS, batch_size=6, weight_decay=0.0)
    seen = {}

    def penalty(inputs: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        seen["shapes"] = inputs.shape, embeddings.shape
        return embeddings.square().sum(1)

    def losses(**options: Any) -> tuple[torch.Tensor, SoftmaxNetwork, torch.Tensor]:
        classifier = SoftmaxNetwork(make_backbone("conv4", (1, 16, 16), n_filters=3), 2)
        training = ClassifierTraining(classifier, x, torch.arange(6) % 2, settings, ALONE, **options)
        order = training._batch(0)
        return training.losses(0, slice(0, 6), torch.Generator()), classifier, order

    plain, classifier, order = losses(batch_statistics=False)
    fined, _, _ = losses(batch_statistics=False, penalty=penalty)
    torch.testing.assert_close(fined - plain, classifier.embeddings(x[order]).square().sum(1))
    assert seen["shapes"] == ((6, 1, 16, 16), (6, 3))


def test_losses_hear_how_many_rows_there_are_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which a divergence counts a part for each row, whatever the batch holds."""
    training, heard = trainee(), []

    def losses(embeddings: torch.Tensor, y: torch.Tensor, generator: torch.Generator, n_rows: int) -> torch.Tensor:
        heard.append((len(y), n_rows))
        return embeddings.sum(1)

    monkeypatch.setattr(training.classifier, "embedded_losses", losses)
    training.losses(0, slice(0, 4), torch.Generator())
    assert heard == [(4, 10)]


def test_batch_normalisation_by_running_statistics() -> None:
    x = torch.randn(6, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    for batch_statistics in (True, False):
        classifier = SoftmaxNetwork(make_backbone("conv4", (1, 16, 16), n_filters=3), 2).train()
        before = {name: value.clone() for name, value in classifier.named_buffers()}
        training = ClassifierTraining(
            classifier, x, torch.arange(6) % 2, SETTINGS, ALONE, batch_statistics=batch_statistics
        )
        training.losses(0, slice(0, 4), torch.Generator()).mean().backward()
        moved = any(not torch.equal(value, before[name]) for name, value in classifier.named_buffers())
        assert moved is batch_statistics
        assert all(p.grad is not None for p in classifier.parameters())


def test_held_out_rows_are_of_every_class() -> None:
    y = torch.tensor([0] * 20 + [1] * 4 + [2] * 2 + [3])[torch.randperm(27, generator=torch.Generator().manual_seed(1))]
    held_out = held_out_rows(y, 0.1, seed=3)
    assert torch.bincount(y[held_out], minlength=4).tolist() == [2, 1, 1, 0]
    assert torch.equal(held_out_rows(y, 0.1, seed=3), held_out)
    assert not torch.equal(held_out_rows(y, 0.1, seed=4), held_out)
    with pytest.raises(ValueError, match="fraction must lie between 0 and 1"):
        held_out_rows(y, 1.0)


def test_crops_are_the_image_moved() -> None:
    images = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).reshape(2, 3, 4, 5) + 1
    found = set()
    for seed in range(40):
        cropped = random_crops(images, 1, torch.Generator().manual_seed(seed))
        assert cropped.shape == images.shape
        assert cropped.dtype == torch.uint8
        for image, moved in zip(images, cropped, strict=True):
            padded = torch.nn.functional.pad(image, (1, 1, 1, 1))
            places = [(i, j) for i in range(3) for j in range(3) if torch.equal(padded[:, i : i + 4, j : j + 5], moved)]
            assert len(places) == 1
            found.add(places[0])
    assert len(found) == 9
    assert torch.equal(random_crops(images, 0, torch.Generator()), images)


def test_half_of_the_images_are_mirrored() -> None:
    images = torch.arange(200, dtype=torch.uint8).reshape(100, 1, 1, 2)
    flipped = random_flips(images, torch.Generator().manual_seed(0))
    mirrored = (flipped != images).flatten(1).all(1)
    assert torch.equal(flipped[mirrored], images[mirrored].flip(-1))
    assert torch.equal(flipped[~mirrored], images[~mirrored])
    assert 30 < int(mirrored.sum()) < 70
    with pytest.raises(ValueError, match=r"only images .* leave crop and flip out"):
        random_flips(torch.zeros(3, 4), torch.Generator())


def test_augmented_images_are_trained_on(tmp_path: Path) -> None:
    x = torch.randint(256, (24, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    classifier = SoftmaxNetwork(make_backbone("conv4", (1, 16, 16), n_filters=4), 2)
    training = ClassifierTraining(classifier, x, torch.arange(24) % 2, replace(SETTINGS, crop=2, flip=True), ALONE)
    train(training, training.loop_settings(), tmp_path, ALONE)
    found = load_deep_classifier(tmp_path / "last.safetensors").train()
    logs = found.log_probabilities(x)
    assert logs.shape == (24, 2)
    # By running statistics: what else is in the batch does not matter, in whatever mode it came.
    torch.testing.assert_close(found.log_probabilities(x, at_once=1), logs, rtol=1e-4, atol=1e-4)
    assert found.training


def test_refusals(tmp_path: Path) -> None:
    x, y = torch.zeros(4, 3), torch.tensor([0, 1, 0, 2])
    softmax = SoftmaxNetwork(make_backbone("linear", (3,)), 2)
    with pytest.raises(ValueError, match="y must hold labels from 0 to n_classes - 1 = 1, but holds 0 to 2"):
        ClassifierTraining(softmax, x, y, SETTINGS, ALONE)
    with pytest.raises(ValueError, match="x and y must have the same number of rows"):
        ClassifierTraining(softmax, x, y[:2], SETTINGS, ALONE)
    with pytest.raises(ValueError, match="validation rows are missing"):
        ClassifierTraining(softmax, x, y % 2, replace(SETTINGS, validate_every=1), ALONE)
    two = Processes(0, 2, torch.device("cpu"))
    with pytest.raises(ValueError, match="class_tree is trained by one process, not 2"):
        ClassifierTraining(network("class_tree"), torch.zeros(4, 64), y, SETTINGS, two)
    for name, value in (
        ("epochs", 0),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("optimiser", "x"),
        ("select_by", "x"),
    ):
        with pytest.raises(ValueError, match=name):
            replace(SETTINGS, **{name: value})
    training = trainee()
    train(training, training.loop_settings(), tmp_path, ALONE)
    other = trainee(replace(SETTINGS, learning_rate=0.2))
    with pytest.raises(ValueError, match=r"training\.learning_rate = 0\.1 then, 0\.2 now"):
        train(other, other.loop_settings(), tmp_path, ALONE)
    path = tmp_path / "strange.safetensors"
    save_artifact(
        path, "deep_classifier", {"config": {}, "progress": {}, "metrics": {}, "classifier": {"name": "x"}}, {}
    )
    with pytest.raises(ArtifactError, match="describes no deep classifier known here"):
        load_deep_classifier(path)


def test_a_folder_without_a_checkpoint_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError, match=r"has no best\.safetensors: name a folder that `sureshot\.networks\.train` wrote"
    ):
        load_deep_classifier(tmp_path)
