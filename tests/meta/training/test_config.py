"""Settings from TOML: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sureshot.meta.protocols import PROTOCOLS, EpisodeProtocol
from sureshot.meta.training import TrainingConfig

MINIMAL = '[data]\nname = "omniglot-choice"\n[learner]\nname = "protonet"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_defaults_are_the_papers(tmp_path: Path) -> None:
    config = TrainingConfig.from_toml(write(tmp_path, MINIMAL))
    assert config.episodes.to_protocol() == EpisodeProtocol(5, 1, 16)
    assert (config.training.episodes, config.training.episodes_per_step) == (60_000, 1)
    assert (config.backbone.name, config.validation.select_by) == ("conv4", "accuracy")


def test_a_preset_fills_in_how_a_paper_trains(tmp_path: Path) -> None:
    text = (
        f'preset = "logistic-softmax-5shot-paper"\n{MINIMAL}[training]\nlearning_rate = 0.5\n[episodes]\nqueries = 15\n'
    )
    config = TrainingConfig.from_toml(write(tmp_path, text))
    assert config.episodes.to_protocol() == EpisodeProtocol(5, 5, 15)
    assert config.training.episodes == 40_000
    assert (config.training.learning_rate, config.training.learning_rate_kernel) == (0.5, 1e-4)
    assert config.data.options == {"rotations": True}
    assert TrainingConfig.from_dict(config.as_dict()) == config
    released = TrainingConfig.from_toml(
        write(tmp_path, MINIMAL.replace("[learner]", "options = { alphabets = 3 }\n[learner]")),
        ["preset=logistic-softmax-5shot-released-code", "episodes.protocol=5way-1shot-train"],
    )
    assert released.data.options == {"rotations": False, "alphabets": 3}
    assert released.episodes.to_protocol() == PROTOCOLS["5way-1shot-train"]


def test_a_preset_beside_no_protocol() -> None:
    tables = {"preset": "one-vs-each-5shot-paper", "data": {"name": "cub"}, "learner": {"name": "protonet"}}
    config = TrainingConfig.from_dict(tables | {"episodes": {"protocol": None}})
    assert config.episodes.shots == 5


def test_a_preset_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no preset 'one-vs-each-5shot'.*presets: one-vs-each-1shot-paper, "):
        TrainingConfig.from_toml(write(tmp_path, MINIMAL), ["preset=one-vs-each-5shot"])
    with pytest.raises(ValueError, match=r"\[episodes\] with keys, got 3"):
        TrainingConfig.from_toml(write(tmp_path, f'preset = "one-vs-each-1shot-paper"\nepisodes = 3\n{MINIMAL}'))
    with pytest.raises(ValueError, match=r"no preset '\[1\]'"):
        TrainingConfig.from_toml(write(tmp_path, f"preset = [1]\n{MINIMAL}"))
    with pytest.raises(ValueError, match=r"data\.options"):
        TrainingConfig.from_toml(write(tmp_path, MINIMAL), ["preset=one-vs-each-1shot-paper", "data.options=3"])
    with pytest.raises(ValueError, match=r"data\.name"):
        TrainingConfig.from_toml(write(tmp_path, MINIMAL), ["preset=one-vs-each-1shot-paper", "data.name=[1]"])


def test_everything_that_can_be_set(tmp_path: Path) -> None:
    text = """
[data]
name = "omniglot-choice"
options = { rotations = true }
[episodes]
way = [3, 5]
shots = [1, 5]
queries = 15
unbalanced = true
[backbone]
name = "conv4"
options = { n_filters = 32 }
[learner]
name = "cdkt_ml"
preset = "paper"
kernel = "rbf"
precision = "bfloat16"
tasks_per_pass = 2
options = { temperature = 0.5 }
[training]
episodes = 100
episodes_per_step = 8
learning_rate = 1
seed = 7
[validation]
select_by = "nll"
patience = 3
"""
    config = TrainingConfig.from_toml(write(tmp_path, text))
    assert config.episodes.to_protocol() == EpisodeProtocol((3, 5), (1, 5), 15, unbalanced=True)
    assert config.learner.options == {"temperature": 0.5}
    assert config.training.learning_rate == 1.0
    assert type(config.training.learning_rate) is float
    assert config.validation.patience == 3
    assert TrainingConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config


def test_a_named_protocol(tmp_path: Path) -> None:
    config = TrainingConfig.from_toml(write(tmp_path, MINIMAL + '[episodes]\nprotocol = "5way-5shot-train"\n'))
    assert config.episodes.to_protocol() == PROTOCOLS["5way-5shot-train"]


def test_replaced_settings(tmp_path: Path) -> None:
    settings = [
        "training.episodes=10",
        "learner.name = cdkt_pl",
        "learner.options.temperature=0.5",
        "episodes.shots=[1, 3]",
        'backbone.name="conv4"',
    ]
    config = TrainingConfig.from_toml(write(tmp_path, MINIMAL), settings)
    assert config.training.episodes == 10
    assert config.learner.name == "cdkt_pl"
    assert config.learner.options == {"temperature": 0.5}
    assert config.episodes.shots == (1, 3)


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("[trainig]\nseed = 1", r"unknown section \[trainig\] \(did you mean 'training'\?\)"),
        ("[training]\nepisode = 1", r"unknown key training.episode \(did you mean 'episodes'"),
        ("[training]\nepisodes = 1.5", "training.episodes must be a whole number, got 1.5"),
        ("[training]\nepisodes = true", "training.episodes must be a whole number, got True"),
        ("[training]\nlearning_rate = 'fast'", "training.learning_rate must be a number, got 'fast'"),
        ("[training]\nlearning_rate = 0", "training.learning_rate must be positive and finite"),
        ("[training]\nlearning_rate = nan", "training.learning_rate must be positive and finite"),
        ("[training]\nepisodes = 0", "training.episodes must be at least 1, got 0"),
        ("[training]\nmilestones = [0]", "training.milestones must be at least 1, got 0"),
        ("[validation]\nselect_by = 'acuracy'", r"must be one of 'accuracy', 'nll', got 'acuracy' \(did you mean"),
        ("[validation]\npatience = 0", "validation.patience must be at least 1"),
        ("[episodes]\nshots = [1, 2, 3]", r"episodes.shots must be a whole number or a range of two whole numbers"),
        ("[episodes]\nshots = [5, 1]", "shots must be at least 1 and a range must rise"),
        ("[episodes]\nprotocol = '5way-1shot'", r"no protocol '5way-1shot' \(did you mean"),
        ("[episodes]\nprotocol = '5way-1shot-train'\nway = 3", r"or sizes \(way\), not both"),
        ("[backbone]\noptions = 3", "backbone.options must be a table of options, got 3"),
        ("training = 3", "unknown key learner.training"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, addition: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        TrainingConfig.from_toml(write(tmp_path, MINIMAL + addition))
    assert "run.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the section \[learner\] is missing"):
        TrainingConfig.from_toml(write(tmp_path, '[data]\nname = "clinc150"'))
    with pytest.raises(ValueError, match=r"the key learner\.name is missing"):
        TrainingConfig.from_toml(write(tmp_path, '[data]\nname = "clinc150"\n[learner]\nkernel = "rbf"'))
    with pytest.raises(ValueError, match=r"learner must be a section \[learner\] with keys, got 3"):
        TrainingConfig.from_toml(write(tmp_path, 'learner = 3\n[data]\nname = "clinc150"'))


def test_files_that_are_no_settings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"run\.toml is not a TOML file"):
        TrainingConfig.from_toml(write(tmp_path, "name: protonet"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"binary\.toml is not a TOML file"):
        TrainingConfig.from_toml(tmp_path / "binary.toml")
    with pytest.raises(FileNotFoundError):
        TrainingConfig.from_toml(tmp_path / "missing.toml")


@pytest.mark.parametrize("setting", ["episodes=3", "training.episodes", ".episodes=3", "data.name.x=3"])
def test_settings_that_replace_nothing(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ValueError, match="--set"):
        TrainingConfig.from_toml(write(tmp_path, MINIMAL), [setting])
