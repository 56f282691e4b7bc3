"""Matching networks against attention by hand and against the recurrences written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sureshot.meta.baselines import MatchingNet
from sureshot.meta.baselines.full_context import QueryReader, SupportReader
from sureshot.meta.learners.base import seeded
from sureshot.meta.tasks import TaskRows
from sureshot.networks.backbones import Backbone, make_backbone

CPU = torch.device("cpu")
WIDTH = 3


def unchanged() -> Backbone:
    """Vectors as they are."""
    return make_backbone("identity", (WIDTH,))


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=seeded(CPU, seed), dtype=torch.float64)


def test_attention_by_hand() -> None:
    learner = MatchingNet(unchanged(), full_context=False, scale=2.0)
    support = torch.tensor([[[1.0, 0, 0], [0, 5.0, 0], [-1.0, 0, 0]]])
    posterior = learner.condition_embedded(TaskRows(support, torch.tensor([[0, 1, 1]]), 2), seeded(CPU))
    weights = torch.tensor([2 * 0.6, 2 * 0.8, 0.0]).exp()  # the opposite direction counts as a right angle
    expected = torch.stack([weights[0], weights[1] + weights[2]]) / weights.sum()
    torch.testing.assert_close(posterior.predict(torch.tensor([[[3.0, 4.0, 0.0]]]))[0, 0], expected)


def test_probabilities_have_a_floor() -> None:
    learner = MatchingNet(unchanged(), full_context=False)
    support = torch.tensor([[[1.0, 0, 0], [0, 1.0, 0]]])
    posterior = learner.condition_embedded(TaskRows(support, torch.tensor([[0, 1]]), 2), seeded(CPU))
    probabilities = posterior.predict(torch.tensor([[[1.0, 0.0, 0.0]]]))[0, 0]
    torch.testing.assert_close(probabilities, torch.tensor([1 - 1e-6, 1e-6]), rtol=1e-3, atol=0)


def cell(
    weights: dict[str, Tensor], inputs: Tensor, hidden: Tensor, memory: Tensor, suffix: str
) -> tuple[Tensor, Tensor]:
    """One step of a long short-term memory, in Torch's order of the gates."""
    gates = (
        weights[f"weight_ih{suffix}"] @ inputs
        + weights[f"bias_ih{suffix}"]
        + weights[f"weight_hh{suffix}"] @ hidden
        + weights[f"bias_hh{suffix}"]
    )
    enter, keep, new, leave = gates.chunk(4)
    memory = keep.sigmoid() * memory + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * memory.tanh(), memory


def test_full_context_is_the_published_recurrence() -> None:
    support, query = normal(4, WIDTH, seed=1), normal(WIDTH, seed=2)
    reader = SupportReader(WIDTH, seeded(CPU, 3)).double()
    weights = dict(reader.lstm.named_parameters())
    outputs = torch.zeros(2, 4, WIDTH, dtype=torch.float64)
    for direction, (suffix, rows) in enumerate((("_l0", range(4)), ("_l0_reverse", range(3, -1, -1)))):
        hidden = memory = torch.zeros(WIDTH, dtype=torch.float64)
        for row in rows:
            hidden, memory = cell(weights, support[row], hidden, memory, suffix)
            outputs[direction, row] = hidden
    context = support + outputs.sum(0)
    torch.testing.assert_close(reader(support[None], None)[0], context)

    queries = QueryReader(WIDTH, seeded(CPU, 4)).double()
    weights = dict(queries.cell.named_parameters())
    state, memory = query, torch.zeros(WIDTH, dtype=torch.float64)
    for _ in range(4):
        attended = (context @ state).softmax(0) @ context
        hidden, memory = cell(weights, torch.cat([query, attended]), state, memory, "")
        state = hidden + query
    torch.testing.assert_close(queries(query[None, None], context[None], None, None)[0, 0], state)


@pytest.mark.parametrize("steps", [None, 3])
def test_tasks_of_different_sizes_are_read_to_their_own_ends(steps: int | None) -> None:
    learner = MatchingNet(unchanged(), attention_steps=steps).double()
    support, query = normal(2, 5, WIDTH, seed=1), normal(2, 3, WIDTH, seed=2)
    y = torch.tensor([[0, 1, 2, 0, 1], [2, 0, 1, 1, 0]])
    mask = torch.tensor([[True] * 5, [True, False, True, True, False]])
    both = learner.condition_embedded(TaskRows(support, y, 3, mask), seeded(CPU)).predict(query)
    for task in range(2):
        real = mask[task]
        alone = learner.condition_embedded(TaskRows(support[[task]][:, real], y[[task]][:, real], 3), seeded(CPU))
        torch.testing.assert_close(both[[task]], alone.predict(query[[task]]))


def test_initial_weights_come_from_the_seed_alone() -> None:
    before = torch.random.get_rng_state()
    first, again, other = MatchingNet(unchanged()), MatchingNet(unchanged()), MatchingNet(unchanged(), seed=1)
    assert torch.equal(before, torch.random.get_rng_state())
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_settings_out_of_range() -> None:
    with pytest.raises(ValueError, match="scale must be positive, got 0"):
        MatchingNet(unchanged(), scale=0)
    with pytest.raises(ValueError, match="attention_steps must be at least 1"):
        MatchingNet(unchanged(), attention_steps=0)
