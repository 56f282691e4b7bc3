"""What the help and the docstring say there is, there is, and nothing else."""

from __future__ import annotations

import re
from typing import get_args, get_type_hints

import pytest

from sureshot import GPClassifier
from sureshot.approximations.by_name import FEATURE_MAPS
from sureshot.cli import options
from sureshot.data.few_shot import FEW_SHOT_NAMES
from sureshot.estimators.gp.settings import APPROXIMATIONS, OBJECTIVES
from sureshot.estimators.search.settings import SCHEDULES
from sureshot.estimators.tree.settings import STRATEGIES
from sureshot.inference import INFERENCE_NAMES
from sureshot.kernels import KERNEL_NAMES
from sureshot.likelihoods import LIKELIHOODS
from sureshot.likelihoods.base import PredictiveRule
from sureshot.structure.grammar import GRAMMARS

NAMES = {
    "kernel": {"auto", *KERNEL_NAMES},
    "likelihood": {"auto", *LIKELIHOODS},
    "inference": {"auto", *INFERENCE_NAMES},
    "objective": {str(name).lower() for name in OBJECTIVES},
}


OTHERS = {
    "GRAMMARS": set(GRAMMARS),
    "SCHEDULES": set(SCHEDULES),
    "STRATEGIES": set(STRATEGIES),
    "FEW_SHOT_SETS": set(FEW_SHOT_NAMES),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_help_names_what_there_is(name: str) -> None:
    stated = get_args(get_type_hints(options.Classifier, include_extras=True)[name])[1].help
    assert sorted(re.findall(r"\w+", stated)) == sorted(NAMES[name])


@pytest.mark.parametrize("names", OTHERS)
def test_options_take_the_names_that_there_are(names: str) -> None:
    assert sorted(getattr(options, names).split(", ")) == sorted(OTHERS[names])


def test_the_docstring_names_what_there_is() -> None:
    parameters = (GPClassifier.__doc__ or "").split("Attributes\n")[0]
    in_python = {"approximation": {*APPROXIMATIONS, *FEATURE_MAPS}, "predictive": {"auto", *get_args(PredictiveRule)}}
    for name, known in (NAMES | in_python).items():
        section = re.split(r"\n    \w+(?:, \w+)? : ", parameters.split(f"\n    {name} : ")[1])[0]
        quoted = known - {"none"} | ({"precomputed"} if name == "kernel" else set())
        assert set(re.findall(r'"(\w+)"', section)) == quoted, name
