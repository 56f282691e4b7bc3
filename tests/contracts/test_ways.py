"""The ways that ARCHITECTURE.md tells are those that rows and tasks go, and no file does one thing twice.

Followed by every call from one file of ours to another that is given the rows. Of a fit the files of `estimators` and
`inference` count; `kernels`, `likelihoods` and `gaussian` are asked for formulas of whatever rows they are given.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch import Tensor

import sureshot
from sureshot import GPClassifier
from sureshot.data.labelled import LabelledSet
from sureshot.meta.episodes import EpisodeSampler
from sureshot.meta.learners import make_learner
from sureshot.meta.protocols import EpisodeProtocol
from sureshot.networks.backbones import make_backbone

SOURCE = Path(sureshot.__file__).parent
DOCUMENT = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text("utf-8")
MOST_FILES = 24  # of which `base.py` knows no labels
HELPERS = {"layout.py", "posterior_arrays.py"}  # copies, in aligned memory, of what a step has made
CHOOSING = {
    "estimators/gp/tuning/choose.py",
    "estimators/gp/tuning/screening.py",
    "estimators/gp/tuning/family_search.py",
    "estimators/gp/tuning/objective.py",
}
N_ROWS = 147  # a number that nothing else has


class Entry(NamedTuple):
    """A call from one file to another, as paths within the package."""

    file: str
    function: str
    caller: str


def entries(work: Callable[[], Any], counts: Callable[[Any], bool]) -> Counter[Entry]:
    """How often control enters a file of ours from another with an argument that counts."""
    found: Counter[Entry] = Counter()

    def file_of(frame: FrameType) -> str | None:
        path = Path(frame.f_code.co_filename)
        return path.relative_to(SOURCE).as_posix() if path.is_relative_to(SOURCE) else None

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or (file := file_of(frame)) is None:
            return
        back = frame.f_back
        while back is not None and file_of(back) is None:
            back = back.f_back
        caller = "" if back is None else file_of(back) or ""
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if caller != file and any(counts(frame.f_locals.get(name)) for name in names if name != "self"):
            found[Entry(file, code.co_qualname, caller)] += 1

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def named_in(title: str) -> set[str]:
    """The files that a section of ARCHITECTURE.md names, without their folders."""
    section = DOCUMENT.split(f"**{title}**")[1].split("\n**")[0]
    return {name.rsplit("/", 1)[-1] for name in re.findall(r"[\w/]+\.py", section)}


def has_the_rows(value: Any, depth: int = 0) -> bool:
    if isinstance(value, np.ndarray | Tensor):
        return N_ROWS in value.shape
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and depth < 2:
        return any(has_the_rows(part, depth + 1) for part in vars(value).values())
    return False


def way_of(model: GPClassifier) -> Counter[Entry]:
    """The entries of a fit."""
    x, y = load_iris(return_X_y=True)
    distinct = np.unique(x, axis=0, return_index=True)[1][:N_ROWS]
    found = entries(lambda: model.fit(x[distinct], y[distinct]), has_the_rows)
    return Counter({entry: n for entry, n in found.items() if entry.file.startswith(("estimators/", "inference/"))})


@pytest.fixture(scope="module")
def one_setting() -> Counter[Entry]:
    return way_of(GPClassifier(ensemble=False, relevance=False))


def test_the_way_of_a_fit_is_told(one_setting: Counter[Entry]) -> None:
    gone = {entry.file.rsplit("/", 1)[-1] for entry in way_of(GPClassifier())}
    assert named_in("The way of a fit.") == gone | {"settings.py", "threads.py"}  # which the rows do not enter
    assert len({entry.file.rsplit("/", 1)[-1] for entry in one_setting} - HELPERS) <= MOST_FILES


def test_a_fit_does_nothing_twice(one_setting: Counter[Entry]) -> None:
    """But for what is done for each candidate while settings are chosen; an average has several members."""
    times: Counter[str] = Counter()
    for entry, n in one_setting.items():
        if entry.caller not in CHOOSING and entry.file.rsplit("/", 1)[-1] not in HELPERS:
            times[f"{entry.file}: {entry.function}"] += n
    candidates = {name for name in times if name.startswith("inference/laplace.py")}
    assert {name for name, n in times.items() if n > 1} <= candidates


@pytest.mark.parametrize("name", ["dkt", "cdkt_ml", "ove_mean_field_pl", "ove_gibbs_pl"])
def test_the_way_of_a_batch_of_tasks_is_told(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    data = LabelledSet(torch.randn(40, 6, generator=generator), torch.arange(40) % 4, tuple("abcd"))
    sampler = EpisodeSampler(data, EpisodeProtocol(way=3, shots=2, queries=2))
    learner = make_learner(name, make_backbone("linear", (6,), rank=4)).train()

    def step() -> None:
        learner(sampler.gather(sampler.draw(2, generator)), generator).sum().backward()

    found = entries(step, lambda value: True)
    gone = {entry.file.rsplit("/", 1)[-1] for entry in found if entry.file.startswith("meta/")}
    assert gone - {"protocols.py", "gibbs_inference.py"} <= named_in("The way of a batch of tasks.")
