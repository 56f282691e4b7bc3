"""Episodes: the right rows, labels, masks and sizes, and nothing that depends on how tasks are grouped."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sureshot.data.labelled import LabelledSet
from sureshot.meta.episodes import PROTOCOLS, EpisodeProtocol, EpisodeSampler
from sureshot.meta.protocols import TRAINING_PRESETS
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import as_inputs


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def labelled(sizes: tuple[int, ...], shuffled: bool = True) -> LabelledSet:
    """Rows that say their own number and class: x = (row, class)."""
    y = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    if shuffled:
        y = y[torch.randperm(len(y), generator=seeded(9))]
    x = torch.stack([torch.arange(len(y)), y], 1).float()
    return LabelledSet(x, y, tuple(f"class {k}" for k in range(len(sizes))))


def rows_of(x: torch.Tensor, mask: torch.Tensor | None, task: int) -> list[int]:
    kept = x[task] if mask is None else x[task][mask[task]]
    return kept[:, 0].long().tolist()


def check(tasks: Tasks, data: LabelledSet, protocol: EpisodeProtocol) -> None:
    """Everything that must hold of any batch of tasks."""
    assert tasks.class_ids is not None
    for task in range(len(tasks)):
        support = rows_of(tasks.support_x, tasks.support_mask, task)
        query = rows_of(tasks.query_x, tasks.query_mask, task)
        assert len({*support, *query}) == len(support) + len(query)  # no row twice, none in both
        real = tasks.class_ids[task] >= 0
        way = int(real.sum())
        assert protocol.ways[0] <= way <= protocol.ways[1]
        assert tasks.n_classes == protocol.ways[1]
        if tasks.class_mask is not None:
            assert torch.equal(real, tasks.class_mask[task])
        assert len(set(tasks.class_ids[task][real].tolist())) == way
        for x, y, mask, bounds, equal in (
            (tasks.support_x, tasks.support_y, tasks.support_mask, protocol.shot_range, not protocol.unbalanced),
            (tasks.query_x, tasks.query_y, tasks.query_mask, protocol.query_range, True),
        ):
            kept = torch.ones_like(y[task], dtype=torch.bool) if mask is None else mask[task]
            assert torch.equal(tasks.class_ids[task][y[task][kept]], x[task][kept][:, 1].long())
            counts = torch.bincount(y[task][kept], minlength=tasks.n_classes)
            assert (counts[real] >= bounds[0]).all()
            assert (counts[real] <= bounds[1]).all()
            assert (counts[~real] == 0).all()
            assert len(counts[real].unique()) == 1 or not equal
            assert (x[task][~kept] == 0).all()
            assert 0 <= int(y[task].min()) <= int(y[task].max()) < tasks.n_classes
            assert (y[task].diff() >= 0).all()  # class after class


def test_a_task_by_hand() -> None:
    data = labelled((3, 3))
    tasks = EpisodeSampler(data, EpisodeProtocol(2, 1, 2)).sample(1, seeded())
    assert tasks.support_y.tolist() == [[0, 1]]
    assert tasks.query_y.tolist() == [[0, 0, 1, 1]]
    assert tasks.support_mask is tasks.query_mask is tasks.class_mask is None
    used = rows_of(tasks.support_x, None, 0) + rows_of(tasks.query_x, None, 0)
    assert sorted(used) == list(range(6))  # every row of both classes
    check(tasks, data, EpisodeProtocol(2, 1, 2))


ranges = st.tuples(st.integers(1, 3), st.integers(0, 2)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=60)
@given(
    way=st.tuples(st.integers(2, 4), st.integers(0, 2)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    shots=ranges,
    queries=ranges,
    unbalanced=st.booleans(),
    spare=st.lists(st.integers(0, 4), min_size=7, max_size=9),
    seed=st.integers(0, 100),
)
def test_any_protocol(
    way: tuple[int, int],
    shots: tuple[int, int],
    queries: tuple[int, int],
    unbalanced: bool,
    spare: list[int],
    seed: int,
) -> None:
    protocol = EpisodeProtocol(way, shots, queries, unbalanced)
    data = labelled(tuple(protocol.rows_per_class + extra for extra in spare))
    check(EpisodeSampler(data, protocol).sample(4, seeded(seed)), data, protocol)


def test_counts_without_a_range_have_no_masks() -> None:
    tasks = EpisodeSampler(labelled((9, 9, 9)), EpisodeProtocol((2, 2), (3, 3), (4, 4))).sample(2, seeded())
    assert tasks.support_mask is tasks.query_mask is tasks.class_mask is None


def test_unbalanced_shots_differ_within_a_task_and_reach_both_ends() -> None:
    protocol = EpisodeProtocol(3, (1, 3), 1, unbalanced=True)
    tasks = EpisodeSampler(labelled((5, 5, 5, 5)), protocol).sample(50, seeded())
    assert tasks.support_mask is not None
    counts = tasks.support_mask.unflatten(1, (3, 3)).sum(-1)
    assert set(counts.flatten().tolist()) == {1, 2, 3}
    assert bool((counts[:, 0] != counts[:, 1]).any())


def test_classes_labels_and_rows_are_uniform() -> None:
    data = labelled((4, 6, 8))
    tasks = EpisodeSampler(data, EpisodeProtocol(2, 1, 2)).sample(6000, seeded())
    assert tasks.class_ids is not None
    first = torch.bincount(tasks.class_ids[:, 0], minlength=3) / 6000
    assert (first - 1 / 3).abs().max() < 4 * (2 / 9 / 6000) ** 0.5  # four standard errors
    rows = tasks.support_x[..., 0].long().flatten()
    counts = torch.bincount(rows, minlength=18)
    for k, size in enumerate((4, 6, 8)):
        share = counts[data.y == k] / counts[data.y == k].sum()
        assert (share - 1 / size).abs().max() < 4 * (1 / size / 4000) ** 0.5


def test_equal_generators_give_equal_tasks_and_the_global_generator_is_left_alone() -> None:
    sampler = EpisodeSampler(labelled((8,) * 6), EpisodeProtocol((2, 4), (1, 3), (2, 3), unbalanced=True))
    before = torch.random.get_rng_state()
    one, two, other = sampler.sample(3, seeded(1)), sampler.sample(3, seeded(1)), sampler.sample(3, seeded(2))
    assert torch.equal(one.support_x, two.support_x)
    assert torch.equal(one.query_x, two.query_x)
    assert not torch.equal(one.support_x, other.support_x)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_embedded_tasks_are_the_same_tasks() -> None:
    data = labelled((8,) * 5)
    protocol = EpisodeProtocol((2, 4), (1, 3), 2)
    sampler = EpisodeSampler(data, protocol)
    embeddings = torch.randn(40, 7, generator=seeded(3))
    plain, embedded = sampler.sample(5, seeded(1)), sampler.gather(sampler.draw(5, seeded(1)), embeddings)
    assert torch.equal(plain.support_y, embedded.support_y)
    assert plain.query_mask is not None
    rows = plain.query_x[..., 0].long()[plain.query_mask]
    assert torch.equal(embedded.query_x[plain.query_mask], embeddings[rows])


def test_embeddings_of_other_rows_are_refused() -> None:
    sampler = EpisodeSampler(labelled((8,) * 5), EpisodeProtocol(2, 1, 1))
    with pytest.raises(ValueError, match="each of the 40 rows of the labelled set, got 39"):
        sampler.gather(sampler.draw(1, seeded()), torch.zeros(39, 2))


def test_out_of_episode_queries_follow_the_tasks_own() -> None:
    data = labelled((9,) * 9)
    sampler = EpisodeSampler(data, EpisodeProtocol((2, 4), (1, 2), (3, 5)))
    inside = sampler.sample(20, seeded(1))
    both = sampler.gather(sampler.draw(20, seeded(1), out_of_episode=True))
    n = inside.query_y.shape[1]
    assert torch.equal(both.support_x, inside.support_x)
    assert torch.equal(both.query_x[:, :n], inside.query_x)
    assert both.query_y.shape == (20, 2 * n)
    assert (both.query_y[:, n:] == -1).all()
    assert inside.query_mask is not None
    assert both.query_mask is not None
    assert torch.equal(both.query_mask, torch.cat([inside.query_mask] * 2, 1))
    assert both.class_ids is not None
    for task in range(20):
        strangers = both.query_x[task, n:][both.query_mask[task, n:]]
        assert not set(strangers[:, 1].long().tolist()) & set(both.class_ids[task].tolist())
        assert len(strangers[:, 0].unique()) == len(strangers)


def test_out_of_episode_needs_twice_the_way() -> None:
    sampler = EpisodeSampler(labelled((4,) * 5), EpisodeProtocol(3, 1, 1))
    with pytest.raises(ValueError, match="twice the way, 6 classes, but there are 5"):
        sampler.draw(1, seeded(), out_of_episode=True)


def test_plain_batches_of_images() -> None:
    data = labelled((4, 5, 6))
    sampler = EpisodeSampler(data, EpisodeProtocol(2, 1, 1))
    tasks = sampler.gather(sampler.draw_images(7, seeded(), n_batches=2))
    assert tasks.support_x.shape == (2, 7, 2)
    assert tasks.query_x.shape == (2, 0, 2)
    assert tasks.n_classes == 3
    assert torch.equal(tasks.support_y, tasks.support_x[..., 1].long())
    assert len(tasks.support_x[..., 0].unique()) == 14
    with pytest.raises(ValueError, match="at least one batch of at least one row, got 2 of 0"):
        sampler.draw_images(0, seeded(), n_batches=2)


def test_plain_batches_of_a_small_set_repeat_its_rows_evenly() -> None:
    sampler = EpisodeSampler(labelled((4, 5, 6)), EpisodeProtocol(2, 1, 1))
    rows = sampler.draw_images(17, seeded(), n_batches=2).support_x
    assert rows.shape == (2, 17)
    counts = rows.flatten().bincount(minlength=15)
    assert counts.tolist().count(3) == 4
    assert counts.tolist().count(2) == 11


def test_bytes_become_numbers_from_zero_to_one() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8)
    assert torch.equal(as_inputs(images), torch.tensor([0.0, 0.2, 1.0]))
    assert as_inputs(torch.ones(2, dtype=torch.float64)).dtype == torch.float32
    data = LabelledSet(torch.full((4, 1, 2, 2), 255, dtype=torch.uint8), torch.tensor([0, 0, 1, 1]), ("a", "b"))
    assert torch.equal(
        EpisodeSampler(data, EpisodeProtocol(2, 1, 1)).sample(3, seeded()).query_x, torch.ones(3, 2, 1, 2, 2)
    )


def test_queries_can_come_from_elsewhere() -> None:
    data = labelled((4,) * 3)
    sampler = EpisodeSampler(data, EpisodeProtocol(2, 1, 1))
    rows = sampler.draw(3, seeded())
    plain, noisy = sampler.gather(rows), sampler.gather(rows, query_x=data.x + 1)
    assert torch.equal(noisy.support_x, plain.support_x)
    assert torch.equal(noisy.query_x, plain.query_x + 1)


def test_some_of_the_drawn_tasks() -> None:
    sampler = EpisodeSampler(labelled((6,) * 4), EpisodeProtocol((2, 3), (1, 2), 2))
    rows = sampler.draw(5, seeded())
    every, some = sampler.gather(rows), sampler.gather(rows.select(slice(1, 3)))
    assert torch.equal(some.support_x, every.support_x[1:3])
    assert some.class_mask is not None
    assert every.class_mask is not None
    assert torch.equal(some.class_mask, every.class_mask[1:3])


def test_a_class_with_too_few_rows_is_named() -> None:
    with pytest.raises(ValueError, match=r"class 'class 1' has 4 rows, fewer than 2 shots and 3 queries = 5.*1 more"):
        EpisodeSampler(labelled((5, 4, 6, 3)), EpisodeProtocol(2, (1, 2), (2, 3)))


def test_too_few_classes() -> None:
    with pytest.raises(ValueError, match="5-way tasks need at least 5 classes, but the labelled set has 1"):
        EpisodeSampler(labelled((30,)), EpisodeProtocol(5, 1, 1))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"way": 1}, "way must be at least 2"),
        ({"shots": 0}, "shots must be at least 1"),
        ({"queries": (5, 3)}, "queries must be at least 1 and a range must rise"),
        ({"shots": 1.5}, "shots must be a whole number or a range of two"),
        ({"way": True}, "way must be a whole number"),
        ({"shots": (1, 2, 3)}, "shots must be a whole number or a range of two"),
        ({"unbalanced": True}, "needs a range of shots"),
    ],
)
def test_impossible_protocols(sizes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EpisodeProtocol(**sizes)  # type: ignore[arg-type]


def test_no_tasks() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        EpisodeSampler(labelled((4,) * 3), EpisodeProtocol(2, 1, 1)).sample(0, seeded())


def test_the_papers_protocols() -> None:
    assert PROTOCOLS["5way-1shot-train"] == EpisodeProtocol(5, 1, 16)
    assert PROTOCOLS["5way-1shot-train"].rows_per_task == 85
    assert PROTOCOLS["5way-5shot-test"] == EpisodeProtocol(5, 5, 15)
    assert PROTOCOLS["5way-5shot-train-omniglot"].rows_per_class == 20
    one, five = TRAINING_PRESETS["one-vs-each-1shot-paper"], TRAINING_PRESETS["logistic-softmax-5shot-released-code"]
    assert (one.episodes, one.learning_rate_kernel) == (60_000, 1e-3)
    assert (five.episodes, five.learning_rate_kernel) == (40_000, 1e-4)
    assert "all 100 classes" in five.note
    assert one.data_options["omniglot-emnist"] == {"rotations": True}
    assert five.data_options["omniglot-emnist"] == {"rotations": False}
    assert five.data_options["miniimagenet-cub"] == {"all_classes": True}
