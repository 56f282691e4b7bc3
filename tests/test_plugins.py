"""Parts of other packages and of scripts count like ours, and harm nobody if they fail.

The packages here are installed ones as Python sees them: a folder on its path with modules and their metadata.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from sureshot import FewShotClassifier, FewShotRegressor, plugins
from sureshot.cli import app
from sureshot.cli.doctor import examine
from sureshot.data import DataError, FewShotData, LabelledSet, load_few_shot, register_dataset
from sureshot.data.few_shot import DATASETS
from sureshot.estimators.gp.backbone import network_for
from sureshot.meta.baselines import ProtoNet
from sureshot.meta.functions import load_functions
from sureshot.meta.learners import EmbeddingLearner, learner_from_config, make_learner, register_learner
from sureshot.meta.learners.registry import LEARNERS
from sureshot.meta.processes import PROCESSES, make_process, process_from_config, register_process
from sureshot.meta.processes.cnp import CNP
from sureshot.meta.training import TrainingConfig, load_checkpoint, train
from sureshot.networks.backbones import BACKBONES, Backbone, backbone_from_config, make_backbone, register_backbone
from sureshot.persistence import ArtifactError

WAVES = """
from pathlib import Path
import torch
from sureshot.data import FewShotData, LabelledSet
from sureshot.meta.baselines import ProtoNet
from sureshot.meta.functions import FunctionData, FunctionRows, FunctionSource
from sureshot.meta.processes.cnp import CNP
from sureshot.networks.backbones import Backbone

class Waves(Backbone):
    name = "waves"

    def __init__(self, input_shape, *, frequency: float = 1.0, seed: int = 0):
        super().__init__(input_shape, 2 * input_shape[0], {"frequency": frequency, "seed": seed})
        drawn = torch.rand(input_shape[0], generator=torch.Generator().manual_seed(seed))
        self.phase = torch.nn.Parameter(drawn)
        self.frequency = frequency

    def encode(self, x):
        turned = self.frequency * x + self.phase
        return torch.cat([turned.sin(), turned.cos()], -1)

class Centroids(ProtoNet):
    name = "centroids"

class Ripples(CNP):
    name = "ripples"

    def __init__(self, input_width, target_width, *, width: int = 4):
        super().__init__(input_width, target_width, width=width, layers=1)

def three_lines(root: Path | None = None, *, rows: int = 24, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    def part(first):
        y = torch.arange(3).repeat(rows)
        x = torch.randn(len(y), 4, generator=generator) / 9 + (first + y)[:, None]
        return LabelledSet(x, y, tuple(f"line {first + k}" for k in range(3)))
    return FewShotData(part(0), part(3), part(6), "three-lines", "lines")

class Steps(FunctionSource):
    input_width = target_width = 1

    def __init__(self, height):
        self.height, self.identity = height, f"steps of height {height}"

    def rows(self, n_tasks, n_rows, generator, beyond):
        x = torch.rand(n_tasks, n_rows, 1, generator=generator)
        y = self.height * (x > torch.rand(n_tasks, 1, 1, generator=generator))
        return FunctionRows(x, y, torch.full((n_tasks, 1), n_rows))

def steps(root: Path | None = None, *, height: float = 1.0):
    source = Steps(height)
    return FunctionData(source, source, source, source.identity)
"""
OFFERED = {
    "sureshot.backbones": {"waves": "waves_parts:Waves"},
    "sureshot.learners": {"centroids": "waves_parts:Centroids"},
    "sureshot.processes": {"ripples": "waves_parts:Ripples"},
    "sureshot.datasets": {"three-lines": "waves_parts:three_lines", "steps": "waves_parts:steps"},
}
RUN = {
    "data": {"name": "three-lines", "options": {"rows": 12}},
    "backbone": {"name": "waves", "options": {"frequency": 0.5}},
    "learner": {"name": "centroids"},
    "episodes": {"way": 3, "shots": 2, "queries": 4},
    "training": {"episodes": 6, "seed": 5},
    "validation": {"every": 6, "tasks": 4, "queries": 4},
}
FUNCTIONS = """
data = { name = "steps", options = { height = 2.0 } }
learner.name = "ripples"
training.episodes = 4
validation = { every = 4, tasks = 4 }
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def install(
    site: Path, name: str, version: str, offered: dict[str, dict[str, str]], modules: dict[str, str]
) -> Callable[[], None]:
    """Put a package there; what is given back takes it away."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in o.items()) for group, o in offered.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)

    def uninstall() -> None:
        shutil.rmtree(info)
        for module in modules:
            (site / f"{module}.py").unlink()
            sys.modules.pop(module, None)

    return uninstall


def run(*arguments: str) -> Any:
    """What a command answers."""
    return CliRunner().invoke(app, list(arguments))


def install_waves(site: Path, version: str = "1.2") -> Callable[[], None]:
    return install(site, "waves-parts", version, OFFERED, {"waves_parts": WAVES})


def test_parts_of_a_package_count_like_ours(site: Path) -> None:
    assert "waves" not in BACKBONES
    install_waves(site)
    assert {"conv4", "waves"} <= set(BACKBONES)
    assert "centroids" in LEARNERS
    assert "three-lines" in DATASETS
    assert "waves_parts" not in sys.modules
    x = torch.tensor([[0.1, -2.0]])
    backbone = make_backbone("waves", (2,), frequency=3.0, seed=4)
    phase = torch.rand(2, generator=torch.Generator().manual_seed(4)).numpy()
    turned = 3 * x.numpy() + phase
    np.testing.assert_allclose(backbone(x).detach(), np.hstack([np.sin(turned), np.cos(turned)]), atol=1e-6)
    assert backbone.config["package"] == {"name": "waves-parts", "version": "1.2"}
    assert backbone_from_config(backbone.config).config == backbone.config
    assert "package" not in make_backbone("identity", (2,)).config
    learner = make_learner("centroids", backbone)
    assert learner.config["package"] == {"name": "waves-parts", "version": "1.2"}
    assert learner_from_config(learner.config, backbone).config == learner.config
    data = load_few_shot("three-lines", rows=7)
    assert len(data.train) == 21
    with pytest.raises(DataError, match=r"rows must be a whole number, got 'many'"):
        load_few_shot("three-lines", rows="many")
    with pytest.raises(DataError, match=r"three-lines: root must be Path, got 'here'"):
        load_few_shot("three-lines", "here")
    with pytest.raises(ValueError, match=r"'waves' has no option 'period'; it has frequency, seed"):
        make_backbone("waves", (2,), period=3)
    with pytest.raises(
        ValueError, match=r"unknown backbone 'wave' \(did you mean 'waves'\?\); choose one of conv4, .*waves"
    ):
        make_backbone("wave", (2,))
    with pytest.raises(ValueError, match=r"unknown learner 'centroid' \(did you mean 'centroids'\?\)"):
        make_learner("centroid", backbone)
    with pytest.raises(DataError, match=r"no few-shot data called 'three-line' \(did you mean 'three-lines'\?\)"):
        load_few_shot("three-line")
    assert network_for("waves", np.zeros((5, 2)), seed=4)[0].config["seed"] == 4  # of GPRegressor(backbone="waves")


@pytest.fixture
def trained(site: Path, tmp_path: Path) -> tuple[Path, Callable[[], None]]:
    """A run of which everything comes from the package, and what takes the package away."""
    uninstall = install_waves(site)
    train(TrainingConfig.from_dict(RUN), tmp_path / "run")
    return tmp_path / "run", uninstall


def test_checkpoints_load_where_the_package_is(trained: tuple[Path, Callable[[], None]], tmp_path: Path) -> None:
    run, uninstall = trained
    checkpoint = load_checkpoint(run)
    package = {"name": "waves-parts", "version": "1.2"}
    assert checkpoint.backbone["package"] == checkpoint.learner["package"] == package
    assert checkpoint.artifact.header["dataset"] == package
    data = load_few_shot("three-lines", rows=12)
    model = FewShotClassifier(run).fit(data.test.x.numpy()[:6], data.test.y.numpy()[:6])
    model.save(tmp_path / "model")
    loaded = FewShotClassifier.load(tmp_path / "model")
    x = data.test.x.numpy()
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    uninstall()
    missing = r"it is of waves-parts 1.2, which is not installed here: python -m pip install waves-parts==1.2"
    with pytest.raises(ArtifactError, match=rf"unknown backbone 'waves': {missing}"):
        load_checkpoint(run).build()
    with pytest.raises(ArtifactError, match=missing):
        FewShotClassifier.load(tmp_path / "model")
    with pytest.raises(ValueError, match=rf"unknown learner 'centroids': {missing}"):
        learner_from_config(checkpoint.learner, make_backbone("identity", (2,)))


def test_another_version_is_told(
    trained: tuple[Path, Callable[[], None]], site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, uninstall = trained
    uninstall()
    without = install(site, "waves-parts", "2.0", {}, {})
    with pytest.raises(ArtifactError, match=r"it is of waves-parts 1.2, of which 2.0 is installed, without it: python"):
        load_checkpoint(run).build()
    without()
    install_waves(site, "1.3")
    with caplog.at_level(logging.WARNING):
        load_checkpoint(run).build()
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "backbone 'waves' is of waves-parts 1.3 here, and was of waves-parts 1.2 when it was saved",
        "learner 'centroids' is of waves-parts 1.3 here, and was of waves-parts 1.2 when it was saved",
    ]


def test_learners_of_numbers_too(site: Path, tmp_path: Path) -> None:
    uninstall = install_waves(site)
    assert "ripples" in PROCESSES
    assert "waves_parts" not in sys.modules
    learner = make_process("ripples", 2, 1, width=3)
    package = {"name": "waves-parts", "version": "1.2"}
    assert learner.config == {"name": "ripples", "input_width": 2, "target_width": 1, "width": 3, "package": package}
    assert process_from_config(learner.config).config == learner.config
    assert "package" not in make_process("cnp", 2, 1).config
    with pytest.raises(ValueError, match=r"unknown learner of numbers 'ripple' \(did you mean 'ripples'\?\); choose"):
        make_process("ripple", 2, 1)
    with pytest.raises(DataError, match=r"learner 'ripples' has no option 'lags'; options: width"):
        make_process("ripples", 2, 1, lags=3)
    settings = tmp_path / "small.toml"
    settings.write_text(FUNCTIONS)  # whose seed is the run's, and no option of this learner
    trained = run("meta-train", str(settings), "-o", str(tmp_path / "run"), "--quiet")
    assert trained.exit_code == 0, trained.stderr
    x = np.linspace(-1, 1, 5)[:, None]
    model = FewShotRegressor(tmp_path / "run").fit(x, x[:, 0])
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(FewShotRegressor.load(tmp_path / "model").predict(x), model.predict(x))
    told = run("meta-evaluate", str(tmp_path / "run"), "--tasks", "3")
    assert "test functions: steps of height 2.0" in told.stderr
    assert told.exit_code == 0
    uninstall()
    without = {group: names for group, names in OFFERED.items() if group != "sureshot.datasets"}
    uninstall = install(site, "waves-parts", "1.2", without, {"waves_parts": WAVES})
    told = run("meta-evaluate", str(tmp_path / "run"), "--quiet")
    assert "unknown data set 'steps': it is of waves-parts 1.2, of which 1.2 is installed" in told.stderr
    uninstall()
    missing = "unknown learner of numbers 'ripples': it is of waves-parts 1.2, which is not installed here"
    with pytest.raises(ArtifactError, match=missing):
        FewShotRegressor(tmp_path / "run").fit(x, x[:, 0])
    with pytest.raises(ArtifactError, match=missing):
        FewShotRegressor.load(tmp_path / "model")
    told = run("meta-evaluate", str(tmp_path / "run"), "--quiet")
    assert "unknown data set 'steps': it is of waves-parts 1.2, which is not installed here" in told.stderr
    assert "Traceback" not in told.stderr


def test_data_sets_of_classes_and_of_functions_are_not_taken_for_each_other(site: Path) -> None:
    install_waves(site)
    with pytest.raises(DataError, match="the data set 'steps' returns FunctionData, and classes are FewShotData"):
        load_few_shot("steps")
    with pytest.raises(DataError, match="the data set 'three-lines' returns FewShotData, and functions are Func"):
        load_functions("three-lines")
    with pytest.raises(DataError, match=r"no functions called 'step' \(did you mean 'steps'\?\)"):
        load_functions("step")
    assert load_functions("steps", height=3.0).description == "steps of height 3.0"


def test_a_data_set_that_is_missing_is_named(trained: tuple[Path, Callable[[], None]], site: Path) -> None:
    folder, uninstall = trained
    small = ("--tasks", "2", "--out-of-episode", "0", "--queries", "3")
    assert run("meta-evaluate", str(folder), "--quiet", *small).exit_code == 0
    assert run("meta-evaluate", str(folder), "--quiet", "--on", "three-lines", *small).exit_code == 0
    uninstall()
    rest = {group: names for group, names in OFFERED.items() if group != "sureshot.datasets"}
    install(site, "waves-parts", "1.2", rest, {"waves_parts": WAVES})
    found = run("meta-evaluate", str(folder), "--quiet", *small)
    assert found.exit_code == 1
    assert "unknown data set 'three-lines': it is of waves-parts 1.2, of which 1.2 is installed" in found.stderr


def test_a_package_that_fails_is_in_nobody_elses_way(site: Path) -> None:
    install_waves(site)
    broken = {"sureshot.backbones": {"broken": "broken_parts:Broken", "lost": "waves_parts:Lost"}}
    install(site, "broken-parts", "0.1", broken, {"broken_parts": "import no_such_module"})
    assert make_backbone("waves", (2,)).n_features == 4
    assert make_backbone("identity", (2,)).n_features == 2
    message = (
        r"the backbone 'broken' of broken-parts 0.1 \(broken_parts:Broken\) cannot be used: "
        r"ModuleNotFoundError: No module named 'no_such_module'"
    )
    with pytest.raises(ValueError, match=message):
        make_backbone("broken", (2,))
    with pytest.raises(ValueError, match=r"'lost' of broken-parts 0.1 .* cannot be used: AttributeError"):
        make_backbone("lost", (2,))
    found = {(offer["kind"], offer["name"]): offer for offer in examine()["plugins"]}
    assert found["backbone", "waves"] == {
        "kind": "backbone",
        "name": "waves",
        "package": "waves-parts 1.2",
        "place": "waves_parts:Waves",
        "problem": None,
    }
    assert {name for _, name in found} == {"waves", "centroids", "ripples", "three-lines", "steps", "broken", "lost"}
    assert "No module named 'no_such_module'" in (found["backbone", "broken"]["problem"] or "")
    text = " ".join(run("doctor").stdout.split())
    assert "data set three-lines" in text
    assert "learner of numbers ripples" in text
    assert "waves-parts 1.2 (waves_parts:Waves)" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "class Part:\n    name = 'part'",
            "a backbone is a class derived from sureshot.networks.backbones.base.Backbone",
        ),
        (
            "from sureshot.networks.backbones import Backbone\nclass Part(Backbone):\n    name = 'part'",
            "it lacks encode",
        ),
        (
            "from sureshot.networks.backbones import Identity\nclass Part(Identity):\n    pass",
            "Part calls itself None",
        ),
        ("from sureshot.networks.backbones import Identity\nclass Part(Identity):\n    name = 'p'", "calls itself 'p'"),
    ],
)
def test_what_is_no_part_is_refused(site: Path, text: str, message: str) -> None:
    install(site, "no-parts", "0.1", {"sureshot.backbones": {"part": "no_parts:Part"}}, {"no_parts": text})
    with pytest.raises(ValueError, match=message):
        make_backbone("part", (2,))


def test_names_that_are_taken_are_refused_with_both_places(site: Path) -> None:
    offered = {"sureshot.backbones": {"conv4": "waves_parts:Waves", "waves": "waves_parts:Waves"}}
    uninstall = install(site, "loud-parts", "3", offered, {"waves_parts": WAVES})
    assert make_backbone("conv4", (1, 16, 16)).config["n_filters"]
    plugins._warn_once.cache_clear()
    message = r"loud-parts 3 \(waves_parts:Waves\) offers the backbone 'conv4', which is sureshot\..*Conv4: it is left"
    with pytest.warns(UserWarning, match=message):
        assert "waves" in BACKBONES
    assert make_backbone("waves", (2,)).n_features == 4  # and is told once
    problems = {offer["name"]: offer["problem"] for offer in BACKBONES.offers()}
    assert problems == {"conv4": "the name is taken by sureshot.networks.backbones.conv4.Conv4", "waves": None}
    install(site, "waves-parts", "1.2", OFFERED, {})
    both = r"two packages offer the backbone 'waves', .*waves-parts 1.2 \(waves_parts:Waves\).*: uninstall one"
    with pytest.raises(ValueError, match=both):
        make_backbone("waves", (2,))
    uninstall()


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What a test registers is taken away after it."""
    yield
    for registry in (BACKBONES, LEARNERS, PROCESSES, DATASETS):
        registry._registered.clear()


@pytest.mark.usefixtures("forgotten")
def test_a_script_registers_its_own(site: Path, tmp_path: Path) -> None:
    @register_backbone
    class Halved(Backbone):
        name = "halved"

        def __init__(self, input_shape: tuple[int, ...]) -> None:
            super().__init__(input_shape, input_shape[0], {})
            self.factor = torch.nn.Parameter(torch.tensor(0.5))

        def encode(self, x: Tensor) -> Tensor:
            return self.factor * x

    @register_learner
    class Means(ProtoNet):
        name = "means"

    @register_process
    class Summed(CNP):
        name = "summed"

        def __init__(self, input_width: int, target_width: int, **options: Any) -> None:
            super().__init__(input_width, target_width, **options)

    @register_dataset
    def own_numbers(root: Any = None, *, rows: int = 12) -> FewShotData:
        y = np.tile(["a", "b", "c"], rows)
        x = np.random.default_rng(0).normal(size=(len(y), 3))
        parts = [LabelledSet.from_arrays(x, [f"{part} {name}" for name in y]) for part in range(3)]
        return FewShotData.of_parts("own-numbers", "numbers", parts)

    assert make_backbone("halved", (3,))(torch.ones(1, 3)).tolist() == [[0.5, 0.5, 0.5]]
    config = {**RUN, "data": {"name": "own-numbers"}, "backbone": {"name": "halved"}, "learner": {"name": "means"}}
    train(TrainingConfig.from_dict(config), tmp_path / "run")
    assert isinstance(load_checkpoint(tmp_path / "run").build(), Means)
    assert make_process("summed", 1, 1, width=8).config["package"] == {"module": __name__}
    with pytest.raises(
        ValueError, match=r"'summed' does not take these options: .*unexpected keyword argument 'wdith'"
    ):
        make_process("summed", 1, 1, wdith=8)
    assert register_backbone(Halved) is Halved  # a cell that runs again

    with pytest.raises(
        ValueError, match=r"cannot be the learner 'dkt', which is sureshot\.meta\.learners\.gp\..*Learner"
    ):
        register_learner(type("Dkt", (ProtoNet,), {"name": "dkt", "__module__": __name__}))
    with pytest.raises(
        ValueError, match=r"\.Other cannot be the backbone 'halved', which is .*Halved: give it another"
    ):
        register_backbone(type("Other", (Halved,), {"name": "halved", "__module__": __name__}))
    install_waves(site)
    with pytest.raises(
        ValueError, match=r"cannot be the backbone 'waves', which is waves-parts 1.2 \(waves_parts:Waves\)"
    ):
        register_backbone(type("Other", (Halved,), {"name": "waves", "__module__": __name__}))
    with pytest.raises(ValueError, match="a learner is a class derived from"):
        register_learner(Halved)  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"a learner of numbers is a class derived from .*RegressionLearner, got"):
        register_process(Means)  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"cannot be the learner of numbers 'cnp', which is .*cnp\.CNP: give"):
        register_process(type("Other", (CNP,), {"name": "cnp", "__module__": __name__}))
    with pytest.raises(ValueError, match=r"it lacks .*task_losses"):
        register_learner(type("Bare", (EmbeddingLearner,), {"name": "bare", "__module__": __name__}))
    with pytest.raises(ValueError, match="is no data set that can be made: it lacks no call"):
        register_dataset(3)  # type: ignore[type-var]
    BACKBONES._registered.clear()
    with pytest.raises(ArtifactError, match=rf"unknown backbone 'halved': the module '{__name__}' had registered it"):
        load_checkpoint(tmp_path / "run").build()
