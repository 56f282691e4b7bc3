"""Every option of few-shot data has an annotation whose meaning is known, and its default is such a value."""

from __future__ import annotations

import inspect

import pytest

from sureshot.data import FEW_SHOT_NAMES
from sureshot.data.few_shot import DATASETS
from sureshot.data.typed_values import check_values


@pytest.mark.parametrize("name", FEW_SHOT_NAMES)
def test_every_default_is_of_the_kind_that_its_annotation_says(name: str) -> None:
    parameters = inspect.signature(DATASETS[name]).parameters
    values = {key: "text" if value.default is value.empty else value.default for key, value in parameters.items()}
    check_values(name, DATASETS[name], values)
