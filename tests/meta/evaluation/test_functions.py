"""Scores of learners of numbers, against those computed by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from sureshot.meta.evaluation import compare_functions, evaluate_functions
from sureshot.meta.functions import FunctionProtocol, FunctionRows, FunctionSource, load_functions
from sureshot.meta.functions.source import with_context
from sureshot.meta.learners.functions import FunctionPosterior, Moments
from sureshot.meta.processes import ExactProcess, make_process
from sureshot.meta.tasks import Tasks
from sureshot.networks.seeds import generator_for


@dataclass(frozen=True)
class Always:
    """The same two normals."""

    width: int = 1

    def adapt(self, tasks: Tasks) -> FunctionPosterior:
        assert tasks.support_mask is not None
        return FunctionPosterior(tasks.support_mask.sum(1), 1, self.two)

    def two(self, query: Tensor) -> Moments:
        shape = (1, *query.shape[:2], self.width)
        mean = torch.cat([torch.full(shape, -0.5), torch.full(shape, 1.0)])
        return Moments(mean, torch.cat([torch.full(shape, 0.5), torch.full(shape, 2.0)]))


class Uneven(FunctionSource):
    """Functions with three to nine rows and two targets."""

    input_width, target_width, identity = 1, 2, "uneven"

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        counts = torch.randint(3, 10, (n_tasks, 1), generator=generator).clamp_max(n_rows)
        x, y = (torch.randn(n_tasks, n_rows, k, generator=generator) for k in (1, 2))
        return FunctionRows(x, y, counts)


def by_hand(y: np.ndarray) -> dict[str, np.ndarray]:
    """Of rows (n, K)."""
    parts = [stats.norm(-0.5, 0.5), stats.norm(1.0, 2.0)]
    density = np.log(np.mean([part.pdf(y).prod(-1) for part in parts], 0))
    share = np.mean([part.cdf(y) for part in parts], 0)
    return {
        "log_density": density,
        "square": ((y - 0.25) ** 2).mean(-1),
        "0.5": ((share > 0.25) & (share < 0.75)).mean(-1),
        "0.9": ((share > 0.05) & (share < 0.95)).mean(-1),
    }


@pytest.mark.parametrize(("source", "width"), [(load_functions("functions").test, 1), (Uneven(), 2)])
def test_scores_by_hand(source: FunctionSource, width: int) -> None:
    found = evaluate_functions(Always(width), source, sizes=(1, 4), targets=6, n_tasks=31, seed=5, batch_size=7)
    assert len(found.scores) == (2 if source.inputs is None else 4)
    exam = source.sample(31, FunctionProtocol(4, 6), generator_for(5, "functions inside"))
    y = exam.query_y.double().numpy()
    mask = np.ones(y.shape[:2], dtype=bool) if exam.query_mask is None else exam.query_mask.numpy()
    expected = by_hand(y)
    for size in (1, 4):
        one = found.at("inside", size)
        real = {name: values[mask] for name, values in expected.items()}
        assert one.log_density.mean == pytest.approx(real["log_density"].mean(), abs=1e-9)
        assert one.rmse.mean == pytest.approx(np.sqrt(real["square"].mean()), abs=1e-9)
        for level in ("0.5", "0.9"):
            assert one.coverage[level].mean == pytest.approx(real[level].mean(), abs=1e-9)
        per_task = np.array([row[known].mean() for row, known in zip(expected["log_density"], mask, strict=True)])
        np.testing.assert_allclose(one.sums / one.counts, per_task, atol=1e-9)
        if exam.query_mask is None:
            error = per_task.std(ddof=1) / np.sqrt(31)
            assert one.log_density.standard_error == pytest.approx(error, abs=1e-9)


def test_methods_meet_the_same_tasks_at_every_size() -> None:
    source = load_functions("functions").test
    seen: list[Tasks] = []

    class Watching:
        def adapt(self, tasks: Tasks) -> FunctionPosterior:
            seen.append(tasks)
            return Always().adapt(tasks)

    evaluate_functions(Watching(), source, sizes=(2, 5), n_tasks=3, targets=4)
    small, large, *_ = seen
    assert torch.equal(small.query_x, large.query_x)
    assert torch.equal(small.support_x, large.support_x[:, :2])
    assert torch.equal(with_context(large, 2).support_y, small.support_y)
    assert float(seen[2].query_x.min()) >= 2


class Level(FunctionSource):
    """The number that `Always` answers with."""

    input_width, target_width, identity = 1, 1, "level"

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        rows = torch.full((n_tasks, n_rows, 1), 0.25)
        return FunctionRows(rows, rows, torch.full((n_tasks, 1), n_rows))


def test_answers_without_an_error() -> None:
    (found, *_) = evaluate_functions(Always(), Level(), sizes=(3,), n_tasks=5).scores
    assert (found.rmse.mean, found.rmse.standard_error) == (0.0, 0.0)


def test_sizes_that_no_function_has_rows_for_are_left_out() -> None:
    """Of at most nine rows two are asked about."""
    found = evaluate_functions(Always(2), Uneven(), sizes=(1, 3, 20, 100), targets=2, n_tasks=50)
    assert [one.context for one in found.scores] == [1, 3, 20]


def test_batches_change_nothing() -> None:
    source, learner = load_functions("functions").test, make_process("np", 1, 1, width=8)
    one, other = (evaluate_functions(learner, source, sizes=(3,), n_tasks=8, batch_size=n) for n in (8, 3))
    for a, b in zip(one.scores, other.scores, strict=True):
        np.testing.assert_allclose(a.sums, b.sums, rtol=1e-5, atol=1e-6)
    assert [part["region"] for part in one.as_dict()["scores"]] == ["inside", "beyond"]
    assert not {"sums", "counts"} & set(one.as_dict()["scores"][0])


def test_the_exact_process_covers_what_it_says() -> None:
    source = load_functions("functions", family="mixture").test
    found = evaluate_functions(ExactProcess.of(source), source, sizes=(0, 5, 20), n_tasks=300)
    for one in found.scores:
        for level, covered in one.coverage.items():
            assert abs(covered.mean - float(level)) < 4 * covered.standard_error + 1e-3
    prior = found.at("inside", 0)
    assert prior.log_density.mean == pytest.approx(-0.5 * np.log(2 * np.pi * np.e * 1.0025), abs=0.05)


@pytest.mark.parametrize("options", [{"sizes": ()}, {"sizes": (-1,)}, {"n_tasks": 0}])
def test_what_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="sizes must be from 0"):
        evaluate_functions(Always(), load_functions("functions").test, **options)  # type: ignore[arg-type]


def test_differences_are_those_of_the_scores() -> None:
    """Tasks count by their rows."""
    both = {"always": Always(2), "np": make_process("np", 1, 2, width=8)}
    found = compare_functions(both, Uneven(), sizes=(3,), n_tasks=20)
    always, other = (found.evaluations[name].at("inside", 3).log_density.mean for name in both)
    assert found.differences["np"][0].log_density.mean == pytest.approx(other - always, abs=1e-12)


def test_differences_are_paired_by_task() -> None:
    source = load_functions("functions").test
    wide, exact = Always(), ExactProcess.of(source)
    found = compare_functions({"always": wide, "exact": exact}, source, sizes=(3,), n_tasks=20, targets=5)
    (inside, beyond) = found.differences["exact"]
    assert (inside.region, inside.context, beyond.region) == ("inside", 3, "beyond")
    scores = [found.evaluations[name].at("inside", 3) for name in ("exact", "always")]
    gap = (scores[0].sums - scores[1].sums) / 5
    assert inside.log_density.mean == pytest.approx(gap.mean(), abs=1e-12)
    assert inside.log_density.standard_error == pytest.approx(gap.std(ddof=1) / np.sqrt(20), abs=1e-12)
    assert inside.log_density.mean > 0
    with pytest.raises(ValueError, match="reference: expected one of always, exact, got 'other'"):
        compare_functions({"always": wide, "exact": exact}, source, reference="other")
