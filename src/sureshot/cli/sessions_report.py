"""The page of ``sessions``, and the figures beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sureshot.evaluation.session_config import SessionsConfig
from sureshot.evaluation.session_study import SessionStudy, averaged
from sureshot.persistence import written_whole
from sureshot.report import Picture, Report, environment, write_report
from sureshot.report.content import as_sentence
from sureshot.report.plots import write_png
from sureshot.report.session_tables import matrices_picture, session_curves, session_tables

_CLOSE = 2  # standard errors between two methods, below which neither is called the better one


def write_sessions_page(study: SessionStudy, config: SessionsConfig, folder: Path, command: str) -> Path:
    """Write ``report.html`` and its figures as ``curves.png`` and ``matrices.png``."""
    pictures = {"curves": session_curves(study), "matrices": matrices_picture(study)}
    page = write_report(folder, _report(study, config, command, tuple(pictures.values())))
    for name, picture in pictures.items():
        with written_whole(folder / f"{name}.png") as temporary:
            write_png(picture.figure, temporary, 150)
    return page


def _report(study: SessionStudy, config: SessionsConfig, command: str, pictures: tuple[Picture, ...]) -> Report:
    summary, *tables = session_tables(study)
    last = next(iter(next(iter(study.evaluations.values())).values())).last
    return Report(
        title=f"{len(config.methods)} {'methods' if len(config.methods) > 1 else 'method'} on classes in sessions",
        introduction=(
            f"{as_sentence(study.in_words)}. After each session a method is asked about test rows "
            f"of all classes seen so far, {last.n_classes} in the end."
            + "".join(f" {method} is left out, {why}" for method, why in study.failures.items())
        ),
        verdict=_verdict(study),
        summary=summary,
        tables=tuple(tables),
        pictures=pictures,
        model={one.shown: _settings(one.name, one.options) for one in config.methods},
        environment=environment(),
        command=command,
    )


def _verdict(study: SessionStudy) -> str:
    """The best by accuracy after the last session, and whether the second is far from it."""
    table = averaged(study.summary(), ["method"]).sort_values("accuracy", ascending=False)
    best = table.iloc[0]
    words = f"{best['method']} knows most after the last session: {best['accuracy']:.1%} of the test rows"
    if len(table) == 1:
        return f"After the last session {best['accuracy']:.1%} of the test rows are right."
    second = table.iloc[1]
    paired = study.summary().pivot(index="seed", columns="method", values="accuracy")
    gap = paired[best["method"]] - paired[second["method"]]
    tail = f"; {second['method']} follows with {second['accuracy']:.1%}"
    if len(gap) > 1:
        error = float(gap.std(ddof=1) / np.sqrt(len(gap)))
        tail += f", {100 * gap.mean():.1f} ± {100 * error:.1f} points behind on the same seeds"
        if gap.mean() < _CLOSE * error:
            tail += ", too little to prefer either"
    return words + tail + "."


def _settings(name: str, options: dict[str, object]) -> str:
    return ", ".join([name, *(f"{key} {value}" for key, value in options.items())])
