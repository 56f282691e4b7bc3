"""A meta-trained learner taught classes or numbers on the command line, and what is done with the model afterwards."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from sureshot.estimators.few_shot.classifier import FewShotClassifier
from sureshot.estimators.few_shot.regressor import FewShotRegressor
from sureshot.meta.learners import make_learner
from sureshot.meta.processes import make_process
from sureshot.meta.training import FunctionTrainingConfig, train
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "best.safetensors"
    learner = make_learner("ove_mean_field_pl", make_backbone("linear", (4,)), kernel="rbf")
    save_checkpoint(path, learner, {}, {"episodes": 0}, {})
    return path


def test_fit_predict_update_evaluate(
    run: Run, files: Path, checkpoint: Path, iris: pd.DataFrame, tmp_path: Path
) -> None:
    model = tmp_path / "model.safetensors"
    arguments = ("--checkpoint", checkpoint, "--report", tmp_path / "report", "--json")
    fitted = run("fit", files / "two.csv", "-t", "species", "-o", model, *arguments)
    assert fitted.exit_code == 0, fitted.stderr
    settings = json.loads(fitted.stdout)["settings"]
    assert settings["learner"] == "ove_mean_field_pl"
    assert settings["backbone"] == "linear"
    assert (tmp_path / "report" / "report.html").is_file()

    updated = run("update", model, files / "third.csv", "-t", "species", "--in-place", "--json")
    assert json.loads(updated.stdout)["new_classes"] == ["virginica"]
    printed = pd.read_csv(io.StringIO(run("predict", model, files / "iris.csv", "--proba", "--outlier").stdout))
    X, y = iris.drop(columns="species"), iris["species"]
    in_python = FewShotClassifier(checkpoint, random_state=0).fit(X, y)
    columns = [f"probability_{name}" for name in in_python.classes_]
    np.testing.assert_allclose(printed[columns], in_python.predict_proba(X), atol=1e-5)
    evaluated = run("evaluate", model, files / "iris.csv", "-t", "species", "--json")
    assert json.loads(evaluated.stdout)["accuracy"] == pytest.approx(in_python.score(X, y))


def test_files_of_a_meta_trained_learner_are_read_alike(
    run: Run, files: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """As those of any model."""
    first, *rows = (files / "two.csv").read_text().splitlines()
    (tmp_path / "old.csv").write_text("\n".join(rows))
    target, how = f"column {first.count(',') + 1}", ("--no-header", "--fold-case")
    run("fit", tmp_path / "old.csv", "-t", target, "-o", tmp_path / "m", "--checkpoint", checkpoint, *how)
    (tmp_path / "new.csv").write_text("\n".join(rows).upper())
    result = run("evaluate", tmp_path / "m", tmp_path / "new.csv", "-t", target, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == len(rows)


def test_a_model_without_a_checkpoint_is_reported_as_what_it_averages(
    run: Run, files: Path, iris: pd.DataFrame, tmp_path: Path
) -> None:
    FewShotClassifier().fit(iris[::10].drop(columns="species"), iris["species"][::10]).save(tmp_path / "model")
    report = ("--report", tmp_path / "report")
    evaluated = run("evaluate", tmp_path / "model", files / "iris.csv", "-t", "species", *report)
    assert evaluated.exit_code == 0, evaluated.stderr
    assert "average of" in (tmp_path / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kernel", "rbf"), "--kernel and --checkpoint exclude each other"),
        (("--standardize", "true"), "--standardize and --checkpoint exclude each other"),
        (("--checkpoint", "nowhere"), "there is no file nowhere"),
    ],
)
def test_mistakes(
    run: Run, files: Path, checkpoint: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    output = tmp_path / "model.safetensors"
    result = run("fit", files / "iris.csv", "-t", "species", "-o", output, "--checkpoint", checkpoint, *arguments)
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not output.exists()


def test_there_is_nothing_to_tune(run: Run, files: Path, checkpoint: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    run("fit", files / "two.csv", "-t", "species", "-o", model, "--checkpoint", checkpoint)
    before = model.read_bytes()
    result = run("update", model, files / "third.csv", "-t", "species", "--retune", "--in-place")
    assert result.exit_code == 1
    assert "--retune is for the models of GPClassifier" in result.stderr
    assert "holds a FewShotClassifier" in result.stderr
    assert model.read_bytes() == before


def test_a_checkpoint_given_as_a_model(run: Run, files: Path, checkpoint: Path) -> None:
    result = run("predict", checkpoint, files / "iris.csv")
    assert result.exit_code == 1
    assert "sureshot fit DATA --checkpoint" in result.stderr


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Handwritten digits as files, three of each of three classes, and other three as queries."""
    folder = tmp_path_factory.mktemp("images")
    digits = load_digits()
    for label, name in enumerate(("zero", "one", "two")):
        chosen = digits.images[digits.target == label][:6]
        for i, pixels in enumerate(chosen):
            place = folder / ("labelled" if i < 3 else "queries") / name
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels / 16 * 255).astype(np.uint8)).save(place / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def image_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "best.safetensors"
    save_checkpoint(
        path, make_learner("ove_mean_field_pl", make_backbone("conv4", (1, 28, 28))), {}, {"episodes": 0}, {}
    )
    return path


def test_folders_of_images(run: Run, images: Path, image_checkpoint: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    report = tmp_path / "report"
    fitted = run(
        "fit", images / "labelled", "--checkpoint", image_checkpoint, "-o", model, "--report", report, "--json"
    )
    assert fitted.exit_code == 0, fitted.stderr
    assert "Classifier of labelled" in (report / "report.html").read_text()
    assert json.loads(fitted.stdout)["classes"] == ["one", "two", "zero"]
    evaluated = json.loads(run("evaluate", model, images / "queries", "--json").stdout)
    assert evaluated["rows"] == 9
    printed = pd.read_csv(io.StringIO(run("predict", model, images / "queries", "--proba").stdout))
    assert printed["row"][0] == "one/3.png"
    truth = printed["row"].str.split("/").str[0]
    assert (printed["prediction"] == truth).mean() == pytest.approx(evaluated["accuracy"])
    one = pd.read_csv(io.StringIO(run("predict", model, images / "queries" / "one" / "3.png", "--proba").stdout))
    assert one["row"].tolist() == ["3.png"]
    np.testing.assert_allclose(one["probability_one"], printed["probability_one"][:1], atol=1e-5)
    updated = run("update", model, images / "queries", "--in-place", "--json")
    assert json.loads(updated.stdout)["rows_added"] == 9
    assert "--id" not in updated.stderr  # images have no such column
    inside = images / "queries" / "one" / "3.png"
    before = inside.read_bytes()
    refused = run("predict", model, images / "queries", "-o", inside)
    assert "is a file of the input folder" in refused.stderr
    assert inside.read_bytes() == before


def test_a_learner_says_what_it_was_trained_on(run: Run, images: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "best.safetensors"
    learner = make_learner("protonet", make_backbone("conv4", (3, 28, 28)))
    save_checkpoint(checkpoint, learner, {"data": {"name": "cub", "options": {}}}, {"episodes": 0}, {})
    model = tmp_path / "model.safetensors"
    fitted = run("fit", images / "labelled", "--checkpoint", checkpoint, "-o", model)
    assert fitted.exit_code == 0, fitted.stderr
    assert "resized to 28 x 28" in fitted.stderr
    assert "trained on cub" in fitted.stderr
    assert FewShotClassifier.load(model).input_shape_ == (3, 28, 28)
    assert run("predict", model, images / "queries").exit_code == 0


def test_classes_that_are_numbers(run: Run, images: Path, image_checkpoint: Path, tmp_path: Path) -> None:
    model, folder = tmp_path / "model.safetensors", tmp_path / "digits"
    for number, name in enumerate(("zero", "one", "two")):
        shutil.copytree(images / "queries" / name, folder / str(number))
    digits = load_digits()
    chosen = np.flatnonzero(digits.target < 3)[:30]
    large = [np.asarray(Image.fromarray(digits.images[i].astype(np.uint8) * 15).resize((28, 28))) for i in chosen]
    np.savez(tmp_path / "digits.npz", X=np.stack(large).reshape(30, -1) / 255, y=digits.target[chosen])
    run("fit", tmp_path / "digits.npz", "--checkpoint", image_checkpoint, "-o", model)
    evaluated = run("evaluate", model, folder, "--json")
    assert evaluated.exit_code == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["unknown_rows"] == 0
    words = run("evaluate", model, images / "queries")
    assert "the labels are text" in words.stderr


def test_images_where_none_are_wanted(
    run: Run, files: Path, images: Path, checkpoint: Path, image_checkpoint: Path, tmp_path: Path
) -> None:
    output = ("-o", tmp_path / "model.safetensors")
    for arguments, words in (
        (("fit", images / "labelled", *output), "--checkpoint RUN"),
        (("fit", files, *output), "no image in"),
        (("fit", images / "nowhere.png", *output), "does not exist"),
        (("fit", images / "labelled", "--checkpoint", checkpoint, *output), "takes rows of 4 numbers"),
        (("fit", images / "labelled", "-t", "a", "--checkpoint", image_checkpoint, *output), "--target names a column"),
        (("predict", files / "iris.safetensors", images / "queries"), "takes rows of 4 numbers"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1
        assert words in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learner of numbers: a Gaussian process with a kernel that nothing was learnt for."""
    path = tmp_path_factory.mktemp("run") / "best.safetensors"
    learner = make_process("dkt_regression", 2, 1, hidden=(), kernel="rbf", lengthscale=1.0)
    save_checkpoint(path, learner, {}, {"episodes": 0}, {})
    return path


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``known.csv`` and ``more.csv``: names, two columns, numbers, and their signs as text."""
    folder = tmp_path_factory.mktemp("plane")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (30, 2)), columns=["a", "b"]).assign(name=[f"r{k}" for k in range(30)])
    frame["y"] = frame["a"] + np.sin(2 * frame["b"]) + rng.normal(0, 0.1, 30)
    frame["sign"] = np.where(frame["y"] > 0, "plus", "minus")
    frame[:15].to_csv(folder / "known.csv", index=False)
    frame[15:].to_csv(folder / "more.csv", index=False)
    return folder


UNITS = "note: rows and numbers are taken in the units of the functions that the learner was trained on"
NUMBERS = ("-t", "y", "--id", "name", "--drop", "sign")


def test_numbers(run: Run, plane: Path, process: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    arguments = ("--checkpoint", process, "--report", tmp_path / "report", "--json")
    fitted = run("fit", plane / "known.csv", *NUMBERS, "-o", model, *arguments)
    assert fitted.exit_code == 0, fitted.stderr
    summary = json.loads(fitted.stdout)
    assert (summary["task"], summary["settings"]["learner"]) == ("numbers", "dkt_regression")
    assert summary["cross_validated"]["rmse"] < summary["cross_validated"]["baseline"]["rmse"]
    assert "dkt_regression" in (tmp_path / "report" / "report.html").read_text()
    assert "dkt_regression" in run("fit", plane / "known.csv", *NUMBERS, "-o", model, "--checkpoint", process).stdout

    known, more = (pd.read_csv(plane / f"{name}.csv") for name in ("known", "more"))
    X = more[["a", "b"]]
    in_python = FewShotRegressor(process).fit(known[["a", "b"]], known["y"], row_id=known["name"])
    assert summary["leave_one_out"]["log_density"] == pytest.approx(in_python.leave_one_out_score_)
    command = ("predict", model, plane / "more.csv", *NUMBERS, "--outlier", "--coverage", "0.8", "--why", "1")
    predicted = run(*command)
    assert predicted.exit_code == 0, predicted.stderr
    printed = pd.read_csv(io.StringIO(predicted.stdout))
    ends = in_python.predict_interval(X, 0.8)
    expected = [*in_python.predict(X, return_std=True), ends.lower, ends.upper, in_python.outlier_score(X)]
    np.testing.assert_allclose(printed.iloc[:, 1:6], np.stack(expected, 1), rtol=1e-5, atol=1e-5)
    assert printed["reason_1"].tolist() == in_python.influence(X, 1).drivers.row_ids[:, 0].tolist()
    report = ("--report", tmp_path / "evaluated", "--json")
    evaluated = json.loads(run("evaluate", model, plane / "more.csv", *NUMBERS, *report).stdout)
    assert evaluated["log_density"] == pytest.approx(in_python.log_density(X, more["y"]).mean())
    assert "dkt_regression" in (tmp_path / "evaluated" / "report.html").read_text()
    chosen = pd.read_csv(io.StringIO(run("suggest", model, plane / "more.csv", *NUMBERS, "-n", "3").stdout))
    assert chosen["name"].tolist() == more["name"].iloc[in_python.suggest(X, 3).rows].tolist()

    updated = run("update", model, plane / "more.csv", *NUMBERS, "--in-place", "--json")
    assert json.loads(updated.stdout)["rows"] == 30
    run("update", model, "--forget-rows", "r0,r1", "--in-place")
    both = pd.concat([known, more])[2:]
    anew = FewShotRegressor(process).fit(both[["a", "b"]], both["y"])
    np.testing.assert_allclose(FewShotRegressor.load(model).predict(X), anew.predict(X), rtol=1e-8, atol=1e-10)


@pytest.fixture(scope="module")
def of_plane(plane: Path) -> Path:
    """A learner trained on the table of the columns "b" and "a"."""
    frame = pd.read_csv(plane / "known.csv").assign(group=[*"vwxyz"] * 3)
    frame[["b", "a", "y", "group"]].to_csv(plane / "groups.csv", index=False)
    config = {
        "data": {"name": "groups", "options": {"path": "groups.csv", "group": "group", "target": "y"}},
        "learner": {"name": "dkt_regression", "options": {"hidden": []}},
        "training": {"episodes": 1},
        "validation": {"every": 0},
    }
    train(FunctionTrainingConfig.from_dict(config), plane / "run", data_root=plane)
    return plane / "run"


def test_columns_go_by_the_names_that_the_learner_knows(run: Run, plane: Path, of_plane: Path, tmp_path: Path) -> None:
    command = ("-t", "y", "--checkpoint", of_plane, "-o", tmp_path / "model", "--json")
    fitted = run("fit", plane / "known.csv", *command)
    assert fitted.exit_code == 0, fitted.stderr
    assert fitted.stderr.splitlines() == [
        f"note: {plane / 'known.csv'}: ignored columns that the model does not know: name, sign"
    ]
    known, more = (pd.read_csv(plane / f"{name}.csv") for name in ("known", "more"))
    in_python = FewShotRegressor(of_plane).fit(known[["a", "b"]], known["y"])
    printed = pd.read_csv(io.StringIO(run("predict", tmp_path / "model", plane / "more.csv", "-t", "y").stdout))
    np.testing.assert_allclose(printed["prediction"], in_python.predict(more[["b", "a"]]), rtol=1e-5, atol=1e-5)
    FewShotRegressor(of_plane).fit(known[["b", "a"]].to_numpy(), known["y"]).save(tmp_path / "of arrays")
    command = ("predict", tmp_path / "of arrays", plane / "more.csv", "-t", "y")
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(run(*command).stdout)), printed)

    known.rename(columns={"a": "A"}).to_csv(tmp_path / "other.csv", index=False)
    for path, target, word in (
        (tmp_path / "other.csv", "y", "trained on (2); missing: a (did you mean 'A'?); unexpected: A"),
        (plane / "known.csv", "b", "learns from column 'b', which is to be left out, or to be the labels"),
    ):
        refused = run("fit", path, "-t", target, "--checkpoint", of_plane, "-o", tmp_path / "none")
        assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
        assert word in refused.stderr
        assert not (tmp_path / "none").exists()


def test_columns_of_text_dates_and_gaps_are_what_the_learner_knows(run: Run, tmp_path: Path) -> None:
    days = pd.date_range("2024-03-01", periods=6).strftime("%d/%m/%Y")
    parts = {"day": days, "code": ["007", "12"] * 3, "rain": ["1,5", "", "2,25", "0,5", "1,0", "3,5"]}
    frame = pd.concat([pd.DataFrame(parts).assign(station=k, spare=1, y=range(k, k + 6)) for k in range(6)])
    frame.to_csv(tmp_path / "all.csv", index=False, sep=";")
    (tmp_path / "a.toml").write_text(
        '[data]\nname = "groups"\noptions = { path = "all.csv", group = "station", target = "y", '
        'inputs = ["day", "code", "rain"], columns = { day = "day_first", code = "category" } }\n'
        '[learner]\nname = "cnp"\n[training]\nepisodes = 1\n[validation]\nevery = 0\n'
    )
    trained = run("meta-train", tmp_path / "a.toml", "--data", tmp_path, "-o", tmp_path / "run")
    assert trained.exit_code == 0, trained.stderr
    assert "ignored columns" not in trained.stderr
    known = frame[:6].drop(columns="station").rename(columns={"code": "Code"})
    known.rename(columns={"Code": "code"}).to_csv(tmp_path / "known.csv", index=False, sep=";")
    known.to_csv(tmp_path / "wrong.csv", index=False, sep=";")
    model = tmp_path / "model"
    fitted = run("fit", tmp_path / "known.csv", "-t", "y", "--checkpoint", tmp_path / "run", "-o", model)
    assert fitted.exit_code == 0, fitted.stderr
    command = ("fit", tmp_path / "known.csv", "-t", "y", "--checkpoint", tmp_path / "run", "-o", tmp_path / "told")
    told = run(*command, "--report", tmp_path / "report")
    assert told.exit_code == 0, told.stderr
    assert (tmp_path / "report" / "report.html").is_file()
    assert "dates: day (day first); gaps are the median, and marked: rain" in " ".join(fitted.stderr.split())
    printed = pd.read_csv(io.StringIO(run("predict", model, tmp_path / "known.csv", "-t", "y").stdout))
    read = pd.DataFrame(parts).assign(rain=[1.5, np.nan, 2.25, 0.5, 1.0, 3.5])
    in_python = FewShotRegressor(tmp_path / "run").fit(read, range(6)).predict(read)
    np.testing.assert_allclose(printed["prediction"], in_python, rtol=1e-5, atol=1e-5)
    refused = run("fit", tmp_path / "wrong.csv", "-t", "y", "--checkpoint", tmp_path / "run", "-o", tmp_path / "none")
    assert refused.exit_code == 1
    assert "missing: code (did you mean 'Code'?)" in refused.stderr.splitlines()[-1]


def test_whole_numbers_are_what_the_learner_answers_with(run: Run, plane: Path, process: Path, tmp_path: Path) -> None:
    """Else twelve counts of three kinds would be classes."""
    pd.DataFrame({"a": range(12), "b": range(12), "count": [1, 2, 3] * 4}).to_csv(tmp_path / "a.csv", index=False)
    for stated in ((), ("--task", "numbers")):
        command = ("fit", tmp_path / "a.csv", "-t", "count", "-o", tmp_path / "m", "--checkpoint", process, *stated)
        fitted = run(*command, "--json")
        assert json.loads(fitted.stdout)["task"] == "numbers", fitted.stderr
        assert fitted.stderr.splitlines() == [UNITS]


@pytest.mark.parametrize(
    ("of", "arguments", "words"),
    [
        ("process", ("-t", "sign"), ("holds text, 'minus', 'plus'", "a learner of numbers (dkt_regression)")),
        ("process", ("-t", "sign"), ("or name a learner of classes (--checkpoint)",)),
        ("process", ("-t", "y", "--task", "classes"), ("(dkt_regression), and --task is classes",)),
        ("process", ("-t", "y", "--drop", "a"), ("takes vectors of length 2", "rows of 1 features came")),
        ("process", ("-t", "y", "--kernel", "rbf"), ("--kernel and --checkpoint exclude each other",)),
        ("checkpoint", ("-t", "y"), ("numbers with fractions", "is a learner of classes (ove_mean_field_pl)")),
        ("checkpoint", ("-t", "y"), ("or name a learner of numbers (--checkpoint)",)),
        ("checkpoint", ("-t", "y", "--task", "numbers"), ("and --task is numbers: leave it out",)),
    ],
)
def test_a_learner_of_the_other_kind(
    run: Run,
    plane: Path,
    process: Path,
    checkpoint: Path,
    tmp_path: Path,
    of: str,
    arguments: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    used, output = {"process": process, "checkpoint": checkpoint}[of], tmp_path / "model"
    command = ("fit", plane / "known.csv", "--id", "name", "-o", output, "--checkpoint", used, *arguments)
    result = run(*command, *(() if "sign" in arguments else ("--drop", "sign")))
    assert result.exit_code == 1
    assert all(word in result.stderr for word in words), result.stderr
    assert result.stderr.count("\n") == 1
    assert not output.exists()


def test_images_are_of_classes(run: Run, images: Path, process: Path, tmp_path: Path) -> None:
    result = run("fit", images / "labelled", "--checkpoint", process, "-o", tmp_path / "model")
    assert result.exit_code == 1
    assert "is a learner of numbers (dkt_regression), which knows no classes" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("predict", ("--proba",), "--proba is for models of classes"),
        ("update", ("-t", "y", "--in-place", "--retune"), "holds a FewShotRegressor: leave it out"),
        ("update", ("-t", "y", "--in-place", "--retune-if-worse"), "holds a FewShotRegressor: leave it out"),
        ("evaluate", ("-t", "sign"), "holds text, 'minus', 'plus', where numbers are learnt"),
    ],
)
def test_what_a_model_of_numbers_cannot(
    run: Run, plane: Path, process: Path, tmp_path: Path, command: str, options: tuple[str, ...], words: str
) -> None:
    model = tmp_path / "model"
    run("fit", plane / "known.csv", *NUMBERS, "-o", model, "--checkpoint", process)
    before = model.read_bytes()
    result = run(command, model, plane / "more.csv", "--id", "name", *options)
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert model.read_bytes() == before
