"""What representatives stand for, on few sessions; findings by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from experiments.representatives import EXPERIMENT, READINGS, JoinedTrees, findings_of, table_of


def quiet(what: str, fraction: float) -> None:
    """No progress."""


def rows(classes: range, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    centres = 2 * torch.randn(9, 8, generator=torch.Generator().manual_seed(0)).double()
    y = np.repeat(np.array(classes), n)
    noise = torch.randn(len(y), 8, generator=torch.Generator().manual_seed(seed)).double()
    return (centres[y] + noise).numpy(), y


@pytest.mark.parametrize("name", READINGS)
def test_sessions_of_every_reading(name: str) -> None:
    method = JoinedTrees(READINGS[name], seed=0).fit(*rows(range(5), 20, 1))
    x, y = rows(range(9), 10, 2)
    base = method.predict_proba(x[y < 5])
    method.partial_fit(*rows(range(5, 7), 5, 3)).partial_fit(*rows(range(7, 9), 5, 4))
    assert method.classes_.tolist() == list(range(9))
    p = method.predict_proba(x)
    np.testing.assert_allclose(p.sum(1), 1)
    within = p[y < 5, :5]
    np.testing.assert_allclose(within / within.sum(1, keepdims=True), base, rtol=1e-9)  # the base tree stays
    assert (p.argmax(1) == y).mean() > 0.4
    kept = 5 if READINGS[name].all_later_rows else 1
    assert len(method._later[0]) == 4 * kept
    assert len(method._base[0]) == 5 * READINGS[name].n_representatives


def test_all_rows_teach_more_than_one_of_each_class() -> None:
    x, y = rows(range(9), 30, 2)
    found = {}
    for name in ("1 row", "1 inducing"):
        found[name] = JoinedTrees(READINGS[name], seed=0).fit(*rows(range(9), 30, 1)).predict_proba(x)
    losses = {name: -np.log(p[np.arange(len(y)), y]).mean() for name, p in found.items()}
    assert losses["1 inducing"] < losses["1 row"] - 0.1


def test_findings() -> None:
    scores = {"5 rows": 0.9, "1 row": 0.5, "1 row + later rows": 0.4, "1 inducing": 0.6}
    scores["1 inducing + later rows"] = 0.8
    frame = pd.DataFrame(
        [
            {
                "representatives": name,
                "seed": seed,
                "session": session,
                "accuracy": score + 0.01 * seed,
                "base_accuracy": score,
                "novel_accuracy": score / 2,
            }
            for name, score in scores.items()
            for seed in (0, 1)
            for session in (0, 1)
        ]
    )
    table = table_of(frame)
    assert table["representatives"].tolist() == list(scores)
    assert table["last se"].to_numpy() == pytest.approx(0.005)
    first, second = findings_of(table)
    assert "one row of a class is 40.0 points below" in first
    assert "and 10.0 points below if later" in second
    assert findings_of(table[1:]) == []


def test_unknown_readings_are_refused_before_data_are_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no reading"):
        EXPERIMENT.run(data_root=tmp_path, progress=quiet, readings=("2 rows",), seeds=(0,))
