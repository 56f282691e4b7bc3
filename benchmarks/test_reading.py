"""Time of reading a table, beside ``pandas.read_csv`` of the same file; the ratio is in ``extra_info``.

Run with ``python -m pytest benchmarks/test_reading.py``. Processor time.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sureshot.data import read_table


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("digits", [2, 15])  # numbers that come again, and such as never do
def test_a_table_of_decimals_beside_pandas(benchmark: Any, digits: int, tmp_path: Path) -> None:
    """20,000 rows, 20 columns of numbers and one of labels."""
    rng, path = np.random.default_rng(0), tmp_path / "decimals.csv"
    frame = pd.DataFrame(rng.normal(size=(20_000, 20))).add_prefix("x")
    frame.assign(label=rng.choice(["a", "b"], len(frame))).to_csv(path, index=False, float_format=f"%.{digits}f")
    benchmark.pedantic(read_table, (path, "label"), rounds=5, warmup_rounds=1)
    seconds = []
    for _ in range(5):
        started = time.process_time()
        pd.read_csv(path)
        seconds.append(time.process_time() - started)
    benchmark.extra_info["peer"] = "pandas.read_csv"
    if benchmark.stats is not None:
        benchmark.extra_info["times its seconds"] = benchmark.stats.stats.min / min(seconds)
