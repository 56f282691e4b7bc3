"""Writing an experiment's page, tables and figures.

For an experiment ``name`` the output folder gets

* ``name.md``: the page for people, with every measured table, the published numbers in a section of their
  own, the verdicts, the figures, the command, seeds, wall time, versions, and what differs from the paper;
* ``name.json.gz``: the same for programs, every table in full precision;
* ``figures/name-figure.png``.

All files are first written beside their destination under a temporary name and moved when every one of them
is complete, the page last: a run that fails or is killed changes nothing.
"""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from experiments.campaigns.archive import write_compressed
from experiments.experiment import ExperimentResult, Outcome, Table, Verdict, plain_value
from sureshot.report.environment import environment
from sureshot.report.plots import write_png

DOTS_PER_INCH = 110
COLOURS = 128


def write_result(outcome: Outcome, *, name: str, output: Path, command: str, wall_seconds: float) -> ExperimentResult:
    """Write everything under `output`, whole or not at all, and return what was written."""
    figures = {f"figures/{name}-{picture.name}.png": picture for picture in outcome.pictures}
    relative = [f"{name}.md", f"{name}.json.gz", *figures]
    result = ExperimentResult(
        name=name,
        tables=outcome.tables,
        figures=tuple(output / path for path in figures),
        verdicts=outcome.verdicts,
        findings="\n\n".join(outcome.findings),
        config=plain_value(asdict(outcome.config)),
        seeds=outcome.seeds,
        wall_seconds=wall_seconds,
        command=command,
        environment=hardware_and_versions(),
        files=tuple(output / path for path in relative),
    )
    output.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=output, prefix=f".{name}.", suffix=".part"))
    try:
        (staging / "figures").mkdir()
        for path, picture in figures.items():
            _save_figure(picture.figure, staging / path)
        text = json.dumps(result.as_dict() | {"files": relative}, separators=(",", ":"), allow_nan=False)
        write_compressed(staging / f"{name}.json.gz", text + "\n")
        (staging / f"{name}.md").write_text(render_page(outcome, result), encoding="utf-8")
        for path in reversed(relative):  # the page last
            (output / path).parent.mkdir(exist_ok=True)
            os.replace(staging / path, output / path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return result


def hardware_and_versions() -> dict[str, str | int]:
    """What a number may depend on: versions, device, threads and processors; nothing that names a machine."""
    wanted = (
        "sureshot",
        "torch",
        "gpytorch",
        "scikit-learn",
        "numpy",
        "scipy",
        "python",
        "device",
        "threads",
    )
    found = environment()
    return {key: found[key] for key in (*wanted, "processors")}


def render_page(outcome: Outcome, result: ExperimentResult) -> str:
    """The page as markdown."""
    measured = [table for table in outcome.tables if table.on_page and not table.published]
    published = [table for table in outcome.tables if table.on_page and table.published]
    parts = [f"# {outcome.title}", outcome.introduction, _provenance(result)]
    if outcome.verdicts:
        parts += ["## Do the findings hold?", markdown_table(Table("findings", "", _verdict_frame(outcome.verdicts)))]
    elif outcome.findings:
        parts += ["## Findings"]
    parts += list(outcome.findings)
    parts += ["## Measured", *[_captioned(table) for table in measured]]
    for picture in outcome.pictures:
        path = f"figures/{result.name}-{picture.name}.png"
        parts.append(f"![{picture.name}]({path})\n\n*{picture.caption}*")
    if published:
        parts += [
            "## Published",
            "Numbers of the papers, for comparison; none of them was measured here.",
            *[_captioned(table) for table in published],
        ]
    if outcome.differences:
        parts += ["## What differs from the paper", "\n".join(f"- {line}" for line in outcome.differences)]
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """In markdown: numbers to the right, nothing for NaN."""
    frame = table.frame
    numeric = [pd.api.types.is_numeric_dtype(frame[column]) for column in frame.columns]
    rows = [[_cell(column, table) for column in frame.columns]]
    rows.append(["---:" if right else "---" for right in numeric])
    rows += [[_cell(value, table) for value in row] for row in frame.astype(object).itertuples(index=False, name=None)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cell(value: Any, table: Table) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float | np.floating):
        return table.written(float(value))
    return str(value).replace("|", "\\|").replace("\n", " ")


def _captioned(table: Table) -> str:
    return f"{table.caption}\n\n{markdown_table(table)}"


def _verdict_frame(verdicts: tuple[Verdict, ...]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "the paper says": [v.claim for v in verdicts],
            "where": [v.source for v in verdicts],
            "measured here": [v.measured for v in verdicts],
            "holds": [v.holds for v in verdicts],
        },
        dtype=object,
    )


def _provenance(result: ExperimentResult) -> str:
    found = result.environment
    packages = ", ".join(f"{key} {found[key]}" for key in ("sureshot", "torch", "numpy", "scikit-learn", "python"))
    config = ", ".join(f"{key} {_setting(value)}" for key, value in result.config.items())
    return "\n".join(
        [
            f"- command: `{result.command}`",
            f"- seeds: {', '.join(map(str, result.seeds)) or 'none (nothing is random)'}",
            f"- wall time: {result.wall_seconds:.1f} s on {found['device']}, {found['processors']} processors, "
            f"{found['threads']} threads",
            f"- versions: {packages}",
            f"- settings: {config}",
        ]
    )


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(map(str, value)) + ")"
    return str(value)


def _save_figure(figure: Figure, path: Path) -> None:
    """PNG of few colours, as it is small, and without a time stamp, so that the same figure is the same file."""
    drawn = io.BytesIO()
    write_png(figure, drawn, DOTS_PER_INCH, metadata={"Software": None})
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
            path, optimize=True
        )
