"""The environment as JSON."""

from __future__ import annotations

import json
import platform

import torch

from sureshot.report import environment


def test_environment() -> None:
    found = environment()
    assert json.loads(json.dumps(found)) == found
    assert found["python"] == platform.python_version()
    assert str(found["torch"]).split("+")[0] == torch.__version__.split("+")[0]
    assert found["threads"] == torch.get_num_threads()
    assert int(found["processors"]) >= 1
    assert {"sureshot", "gpytorch", "numpy", "scikit-learn", "device", "platform"} <= set(found)
