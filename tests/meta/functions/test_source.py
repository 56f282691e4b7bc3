"""Sources of functions: context and targets of tasks, images, sinusoids, groups of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sureshot.data.labelled import LabelledSet
from sureshot.data.root import DataError
from sureshot.meta.functions import FUNCTION_NAMES, FunctionProtocol, by_name, load_functions
from sureshot.meta.functions.groups import Groups
from sureshot.meta.functions.images import Images
from sureshot.meta.functions.source import FunctionSource, with_context


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def of(name: str, **options: object) -> FunctionSource:
    return load_functions(name, **options).train  # type: ignore[arg-type]


def test_context_sizes_differ_and_padding_is_zero() -> None:
    tasks = of("functions").sample(40, FunctionProtocol((0, 6), 5), generator())
    assert tasks.support_mask is not None
    assert set(tasks.support_mask.sum(1).tolist()) == set(range(7))
    assert float(tasks.support_x[~tasks.support_mask].abs().sum()) == 0
    assert float(tasks.support_y[~tasks.support_mask].abs().sum()) == 0
    assert tasks.query_mask is None
    assert tasks.n_classes == 0
    assert tasks.merged().mask is not None
    assert tasks.merged().mask.shape == (40, 11)  # type: ignore[union-attr]


def test_less_context_has_the_same_targets_and_the_first_rows() -> None:
    tasks = of("functions").sample(3, FunctionProtocol(8, 5), generator())
    fewer = with_context(tasks, 2)
    assert torch.equal(fewer.query_y, tasks.query_y)
    assert torch.equal(fewer.support_x, tasks.support_x[:, :2])
    assert not set(tasks.support_x.flatten().tolist()) & set(tasks.query_x.flatten().tolist())


def test_the_seed_decides() -> None:
    one, other = (of("sinusoids").sample(3, FunctionProtocol(), generator(4)) for _ in range(2))
    assert torch.equal(one.support_y, other.support_y)


def test_sinusoids_are_sinusoids() -> None:
    with pytest.raises(ValueError, match="noise must be a standard deviation, at least 0, got -1"):
        of("sinusoids", noise=-1.0)
    rows = of("sinusoids", noise=0.0).rows(30, 40, generator(), beyond=False)
    for x, y in zip(rows.x[..., 0].numpy(), rows.y[..., 0].numpy(), strict=True):
        basis = np.stack([np.sin(x), np.cos(x)], 1)
        weights, residual, *_ = np.linalg.lstsq(basis, y, rcond=None)
        assert residual < 1e-18
        assert 0.1 <= np.hypot(*weights) <= 5


def photographs() -> LabelledSet:
    x = torch.randint(0, 256, (6, 3, 4, 5), generator=generator(3), dtype=torch.uint8)
    return LabelledSet(x, torch.arange(6) % 2, ("a", "b"))


def test_pixels_of_images() -> None:
    data = photographs()
    source = Images(data)
    rows = source.pixels(torch.tensor([2]), 99, generator())
    assert rows.counts.tolist() == [[20]]
    for place, value in zip(rows.x[0].numpy(), rows.y[0].numpy(), strict=True):
        down, across = round((place[0] + 1) * 2 - 0.5), round((place[1] + 1) * 2.5 - 0.5)
        np.testing.assert_allclose(value, data.x[2, :, down, across].numpy() / 255, rtol=1e-6)
    assert source.places[:2].tolist() == pytest.approx(np.array([[-0.75, -0.8], [-0.75, -0.4]]))


def test_an_image_has_only_so_many_pixels() -> None:
    tasks = Images(photographs()).sample(2, FunctionProtocol(50, 7), generator())
    assert tasks.support_mask is not None
    assert tasks.query_mask is None
    assert tasks.support_mask.sum(1).tolist() == [13, 13]
    few = Images(photographs()).sample(2, FunctionProtocol(50, 30), generator())
    assert few.query_mask is not None
    assert few.query_mask.sum(1).tolist() == [10, 10]


def test_images_only() -> None:
    with pytest.raises(ValueError, match="image completion needs images"):
        Images(LabelledSet(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]), ("a", "b")))


def table(tmp_path: Path, sizes: list[int]) -> Path:
    rng = np.random.default_rng(0)
    lines = ["shop,day,price,sold"]
    for shop, size in enumerate(sizes):
        lines += [f"s{shop},{day},{rng.normal():.4f},{10 * shop + day}" for day in range(size)]
    path = tmp_path / "sales.csv"
    path.write_text("\n".join(lines))
    return path


def test_of_functions_with_few_rows_each_size_of_context_is_as_likely(tmp_path: Path) -> None:
    path = table(tmp_path, [8] * 10)
    source = load_functions("groups", path=str(path), group="shop", target="sold").train
    tasks = source.sample(3000, FunctionProtocol((1, 50), 50), generator())
    assert tasks.support_mask is not None
    counts = torch.bincount(tasks.support_mask.sum(1))
    assert counts[0] == 0
    assert len(counts) == 5
    assert float((counts[1:] / 3000 - 0.25).abs().max()) < 0.04
    fixed = source.sample(3, FunctionProtocol(6, 50), generator())
    assert fixed.support_mask is not None
    assert fixed.support_mask.sum(1).tolist() == [4, 4, 4]


def test_groups_of_a_table(tmp_path: Path) -> None:
    path = table(tmp_path, [2, 5, 9, 4, 7])
    data = load_functions("groups", path=str(path), group="shop", target="sold", fractions=(0.6, 0.2, 0.2))
    seen: list[set[float]] = []
    for source in (data.train, data.val, data.test):
        tasks = source.sample(30, FunctionProtocol((1, 6), 3), generator())
        assert tasks.support_mask is not None
        mask = (
            torch.ones_like(tasks.query_y[..., 0], dtype=torch.bool) if tasks.query_mask is None else tasks.query_mask
        )
        assert bool(mask.any(1).all())
        assert bool(tasks.support_mask.any(1).all())
        for task in range(30):
            context = tasks.support_y[task][tasks.support_mask[task]].flatten().tolist()
            targets = tasks.query_y[task][mask[task]].flatten().tolist()
            assert not set(context) & set(targets)
        seen.append(set(tasks.query_y[mask].flatten().tolist()))
    assert not seen[0] & seen[1]
    assert not seen[1] & seen[2]
    every = data.train.rows(200, 20, generator(), beyond=False)
    assert data.train.input_width == 2
    assert int(every.counts.max()) in {9, 7, 5, 4, 2}


def test_groups_say_by_what_they_are_standardised(tmp_path: Path) -> None:
    """By the rows of the training groups, as the table has them."""
    path = table(tmp_path, [2, 5, 9, 4, 7])
    data = load_functions("groups", path=str(path), group="shop", target="sold")
    frame, every = pd.read_csv(path), data.train.rows(200, 20, generator(), beyond=False)
    assert data.units is not None
    mean, deviation = np.array(data.units["targets"])
    real = torch.arange(every.y.shape[1]) < every.counts
    sold = np.unique((every.y[real].double().numpy() * deviation + mean).round(3))
    assert set(sold) <= set(frame["sold"].round(3))
    rows = frame[frame["sold"].round(3).isin(sold)]
    np.testing.assert_allclose([mean[0], deviation[0]], [rows["sold"].mean(), rows["sold"].std()], rtol=1e-9)
    inputs = rows.drop(columns=["shop", "sold"])
    np.testing.assert_allclose(data.units["inputs"], [inputs.mean(), inputs.std()], rtol=1e-9)
    assert load_functions("sinusoids").units is None


def test_groups_say_how_many_they_are_and_what_their_columns_are_called(tmp_path: Path) -> None:
    path = str(table(tmp_path, [2, 5, 9, 4, 7]))
    data = load_functions("groups", path=path, group="shop", target="sold", inputs=["price", "day"])
    assert data.units is not None
    assert data.units["columns"] == ["price", "day"]
    assert data.description == "sold of each shop in sales.csv, groups 3 / 1 / 1 by seed 0"


def test_groups_by_several_columns_that_may_be_inputs(tmp_path: Path) -> None:
    path = table(tmp_path, [4] * 5)
    frame = pd.read_csv(path).assign(half=lambda rows: rows["day"] // 2)
    frame.to_csv(path, index=False)
    by = {"group": ["shop", "half"], "target": "sold", "path": str(path)}
    data = load_functions("groups", **by, inputs=["half", "price"])
    assert data.description == "sold of each shop, half in sales.csv, groups 6 / 2 / 2 by seed 0"
    every = data.train.rows(50, 9, generator(), beyond=False)
    assert every.counts.tolist() == [[2]] * 50
    assert torch.equal(every.x[:, 0, 0], every.x[:, 1, 0])
    assert load_functions("groups", **by).train.input_width == 2  # day and price
    for wrong in ({"group": []}, {"inputs": ["half"]}, {"group": ["shop", "sold"]}):
        with pytest.raises(DataError, match="expected columns for group, and inputs of which one is none of these"):
            load_functions("groups", **(by | wrong))


def test_inputs_of_groups_may_be_text_dates_and_have_gaps(tmp_path: Path) -> None:
    """Numbers of what the training groups show: days and rain are standardised, levels are not."""
    rows = 60
    day = pd.Timestamp("2024-03-01") + pd.to_timedelta(np.arange(rows) % 7, unit="D")
    frame = pd.DataFrame(
        {
            "station": np.repeat([f"00{k}" for k in range(10)], 6),
            "day": day.strftime("%d.%m.%Y"),
            "sky": np.tile(["clear", "cloudy", "grey"], 20),
            "rain": np.where(np.arange(rows) % 5 == 0, np.nan, np.arange(rows) % 11),
            "kind": np.arange(rows) % 2,
            "mean": np.arange(rows) / 7,
            "meta_note": "as sent",
        }
    )
    path = tmp_path / "weather.csv"
    frame.to_csv(path, index=False)
    options: dict[str, Any] = {"path": str(path), "group": "station", "target": "mean"}
    data = load_functions("groups", **options, columns={"kind": "category"})
    assert data.units is not None
    assert data.units["columns"] == ["day", "sky", "rain", "kind"]
    targets, inputs = (np.array(data.units[part]) for part in ("targets", "inputs"))
    seen = data.train.rows(200, 6, generator(), beyond=False)
    mean = seen.y.flatten(0, 1).double().numpy() * targets[1] + targets[0]
    of_row = np.round(7 * mean.ravel()).astype(int)
    trained = np.unique(of_row)
    assert len(trained) == 36
    days = (frame["day"].str[:2].astype(int) + (pd.Timestamp("2024-02-29") - pd.Timestamp(0)).days).to_numpy(float)
    rain = frame["rain"].fillna(frame["rain"].iloc[trained].median()).to_numpy()
    expected = [
        (days - days[trained].mean()) / days[trained].std(ddof=1),
        *(frame["sky"] == level for level in ("clear", "cloudy", "grey")),
        (rain - rain[trained].mean()) / rain[trained].std(ddof=1),
        frame["rain"].isna(),
        frame["kind"] == 1,
    ]
    np.testing.assert_allclose(seen.x.flatten(0, 1), np.stack(expected, 1).astype(float)[of_row], atol=2e-6)
    np.testing.assert_array_equal(inputs[:, [1, 2, 3, 5, 6]], [[0.0] * 5, [1.0] * 5])
    assert load_functions("groups", **options, inputs=["kind"]).train.input_width == 1
    assert "encoder" not in (load_functions("groups", **options, inputs=["kind"]).units or {})
    frame.assign(kind=[f"{1000 + k:,} $" for k in frame["kind"]]).to_csv(path, index=False)
    assert "encoder" in (load_functions("groups", **options, inputs=["kind"]).units or {})
    for wrong, words in (
        ({"columns": {"snow": "number"}}, "X has no column 'snow'"),
        ({"columns": {"sky": "colour"}}, "the kind of 'sky' must be one of"),
        ({"columns": {"sky": "number"}}, "weather.csv: column 'sky': 'clear' in row"),
        ({"inputs": ["snow"]}, "weather.csv: no column 'snow'"),
        ({"group": "town"}, "weather.csv: no column 'town'"),
        ({"inputs": ["day", "sky", "day"]}, "group and inputs name day more than once"),
        ({"group": ["station", "station"]}, "group and inputs name station more than once"),
        ({"inputs": ["meta_note", "day"]}, "rename meta_note: columns whose names begin with meta_ are notes"),
    ):
        with pytest.raises(ValueError, match=words):
            load_functions("groups", **(options | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [1e160, 1e-160])
@pytest.mark.parametrize("name", ["day", "sold"])
def test_numbers_whose_squares_are_none(tmp_path: Path, name: str, factor: float) -> None:
    path = table(tmp_path, [4] * 5)
    frame = pd.read_csv(path)
    frame.assign(**{name: frame[name] * factor}).to_csv(path, index=False)
    with pytest.raises(DataError, match=f"numbers of '{name}' are as large as 1e.100, or differ by less than 1e-100"):
        load_functions("groups", path=str(path), group="shop", target="sold")


def test_the_target_of_groups_is_no_input(tmp_path: Path) -> None:
    path = str(table(tmp_path, [2, 5, 9, 4, 7]))
    with pytest.raises(DataError, match=r"all other than the target 'sold'; got .* inputs \['day', 'sold'\]"):
        load_functions("groups", path=path, group="shop", target="sold", inputs=["day", "sold"])


def test_groups_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 groups of several rows, expected at least three"):
        load_functions("groups", path=str(table(tmp_path, [3, 1, 3])), group="shop", target="sold")
    path = str(table(tmp_path, [3] * 10))
    with pytest.raises(DataError, match="expected three positive numbers"):
        load_functions("groups", path=path, group="shop", target="sold", fractions=(0.5, 0.5))
    few = load_functions("groups", path=path, group="shop", target="sold", fractions=(0.5, 0.04, 0.46))
    assert "groups 4 / 1 / 5" in few.description
    with pytest.raises(DataError, match="a group of a single row has nothing"):
        Groups(torch.zeros(3, 1), torch.zeros(3, 1), torch.tensor([0, 0, 1]))


def test_groups_of_a_single_row_are_left_out(tmp_path: Path) -> None:
    """A table with them is as the table without them, and says so."""
    options: dict[str, Any] = {"group": "shop", "target": "sold"}
    path = table(tmp_path, [2, 1, 5, 9, 1, 4])
    data, frame = load_functions("groups", path=str(path), **options), pd.read_csv(path)
    assert "groups 2 / 1 / 1 (2 of a single row left out) by seed 0" in data.description
    frame[frame.groupby("shop")["sold"].transform("size") > 1].to_csv(tmp_path / "rest.csv", index=False)
    rest = load_functions("groups", path=str(tmp_path / "rest.csv"), **options)
    assert (data.units, data.test.identity) == (rest.units, rest.test.identity)


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda: FunctionProtocol((3, 2)), "a range must rise"),
        (lambda: FunctionProtocol((1, 2, 3)), "a range of two"),  # type: ignore[arg-type]
        (lambda: FunctionProtocol(3, 0), "targets must be at least 1"),
        (lambda: load_functions("fuctions"), "did you mean 'functions'"),
        (lambda: load_functions("functions", family="rbg"), "family must be one of"),
        (lambda: of("functions").sample(0, FunctionProtocol(), generator()), "at least one task"),
        (lambda: Images(photographs()).sample(1, FunctionProtocol(), generator(), beyond=True), "no inputs beyond"),
    ],
)
def test_what_is_refused(work: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        work()  # type: ignore[operator]


def test_settings_know_all_functions_that_there_are() -> None:
    assert set(FUNCTION_NAMES) == {*by_name._DRAWN, *by_name._FOUND}
