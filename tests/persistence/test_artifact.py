"""Writing and reading model files: exact, atomic, and one clear line for every file that is no model."""

import json
import os
import pickle
import stat
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from sureshot.persistence import Artifact, ArtifactError, load_artifact, save_artifact

HEADER = {
    "classes": ["ja", "nein", "weiß nicht"],
    "temperature": 0.1,
    "kernel": {"name": "rbf", "ard": False},
}


def _arrays() -> dict[str, np.ndarray | torch.Tensor]:
    generator = np.random.default_rng(0)
    return {
        "x": generator.standard_normal((5, 3)),
        "transposed": generator.standard_normal((4, 2)).T,
        "scalar": np.float64(0.1),
        "none": np.empty((0, 3)),
        "bits": np.array([np.nan, -0.0, np.inf, 5e-324]),
        "mask": np.array([True, False]),
        "counts": np.arange(3, dtype=np.uint16),
        "swapped": np.arange(3, dtype=">i4"),
        "weights": torch.linspace(0, 1, 5, dtype=torch.float32, requires_grad=True),
    }


def _saved(folder: Path) -> Path:
    path = folder / "model.safetensors"
    save_artifact(path, "classifier", HEADER, _arrays())
    return path


def _same(artifact: Artifact) -> bool:
    """Whether an artefact is what `_saved` wrote."""
    return (
        artifact.header == HEADER
        and artifact.kind == "classifier"
        and artifact.arrays.keys() == _arrays().keys()
        and all(
            np.ascontiguousarray(artifact.arrays[name]).tobytes() == _numpy(value).tobytes()
            and artifact.arrays[name].shape == tuple(value.shape)
            for name, value in _arrays().items()
        )
    )


def _numpy(value: np.ndarray | torch.Tensor) -> np.ndarray:
    array = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))


def _message(path: Path, kind: str | None = None) -> str:
    """The error of loading `path`, which must be a single line."""
    with pytest.raises(ArtifactError) as caught:
        load_artifact(path, *([] if kind is None else [kind]))
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_everything_comes_back_bit_for_bit(tmp_path: Path) -> None:
    artifact = load_artifact(_saved(tmp_path), "classifier")
    assert _same(artifact)
    for name, value in _arrays().items():
        assert artifact.arrays[name].dtype == _numpy(value).dtype
        assert artifact.arrays[name].flags.writeable
    assert artifact.package_version


def test_another_process_reads_the_same(tmp_path: Path) -> None:
    path = _saved(tmp_path)
    code = (
        "import sys; from sureshot.persistence import load_artifact; "
        "sys.stdout.write(load_artifact(sys.argv[1]).arrays['x'].tobytes().hex())"
    )
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert bytes.fromhex(out.stdout) == _numpy(_arrays()["x"]).tobytes()


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    first = _saved(tmp_path).read_bytes()
    save_artifact(tmp_path / "b", "classifier", dict(reversed(HEADER.items())), dict(reversed(_arrays().items())))
    assert (tmp_path / "b").read_bytes() == first


def test_no_arrays_and_no_header_are_fine(tmp_path: Path) -> None:
    save_artifact(tmp_path / "empty", "nothing", {}, {})
    artifact = load_artifact(tmp_path / "empty")
    assert (artifact.header, artifact.arrays) == ({}, {})


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert stat.S_IMODE(_saved(tmp_path).stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_link_keeps_pointing_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "model.safetensors"
    link.symlink_to(tmp_path / "real" / "target.safetensors")
    _saved(tmp_path)
    assert link.is_symlink()
    assert _same(load_artifact(tmp_path / "real" / "target.safetensors"))


@pytest.mark.parametrize(
    ("header", "arrays"),
    [
        ({"a": np.float64(1)}, {"x": np.array(["text"])}),
        ({}, {"x": np.array([object()])}),
        ({}, {"x": np.array([1j])}),
        ({}, {"x": np.array(["2026-01-01"], dtype="M8[D]")}),
        ({}, {"x": torch.zeros(2, dtype=torch.bfloat16)}),
        ({}, {"": np.zeros(1)}),
        ({}, {"__metadata__": np.zeros(1)}),
        ({"a": float("nan")}, {}),
        ({"a": {1, 2}}, {}),
        ({"a": (1, 2)}, {}),
        ({1: "a"}, {}),
    ],
)
def test_what_cannot_be_kept_is_refused_and_the_old_file_stays(tmp_path: Path, header: dict, arrays: dict) -> None:
    path = _saved(tmp_path)
    before = path.read_bytes()
    with pytest.raises(ArtifactError):
        save_artifact(path, "classifier", header, arrays)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="it is a folder"):
        save_artifact(tmp_path, "classifier", {}, {})
    with pytest.raises(ArtifactError, match="there is no folder"):
        save_artifact(tmp_path / "no" / "model", "classifier", {}, {})
    with pytest.raises(ArtifactError, match="cannot save"):
        save_artifact(tmp_path / ("m" * 300), "classifier", {}, {})
    assert os.listdir(tmp_path) == []


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert "there is no file" in _message(path)
    assert "is a folder" in _message(tmp_path)
    path.write_bytes(b"")
    assert "is empty" in _message(path)
    path.write_text("sepal length,sepal width,species\n5.1,3.5,setosa\n")
    assert "not a model that sureshot saved" in _message(path)
    path.write_text("hi")
    assert "not a model that sureshot saved" in _message(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"x" * 100)
    assert "zip archive" in _message(path)
    torch.save({"x": torch.zeros(3)}, path)
    assert "zip archive" in _message(path)
    save_file({"x": np.zeros(3)}, path)
    assert "safetensors file of another program" in _message(path)
    save_file({"x": np.zeros(3)}, path, metadata={"format": "pt"})
    assert "safetensors file of another program" in _message(path)


class _Bomb:
    """Unpickling this leaves a mark on disk."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_not_run(tmp_path: Path, protocol: int) -> None:
    path, mark = tmp_path / "model.pkl", tmp_path / "mark"
    path.write_bytes(pickle.dumps(_Bomb(mark), protocol=protocol))
    text = _message(path)
    assert not mark.exists()
    if protocol >= 2:
        assert "looks like a pickle" in text


@pytest.mark.skipif(os.name != "posix", reason="named pipes are POSIX's")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in _message(tmp_path / "pipe")


def test_another_kind_is_named(tmp_path: Path) -> None:
    text = _message(_saved(tmp_path), "tree")
    assert "'classifier'" in text
    assert "'tree'" in text


def _rewritten(folder: Path, **changes: object) -> Path:
    """A saved file whose metadata entry has other values (None: left out), its digest as it was."""
    source = load_artifact(_saved(folder))
    raw = (folder / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    content = json.loads(json.loads(raw[8 : 8 + length])["__metadata__"]["sureshot"]) | changes
    content = {key: value for key, value in content.items() if value is not None}
    path = folder / "rewritten"
    save_file(source.arrays, path, metadata={"sureshot": json.dumps(content)})
    return path


def test_a_newer_format_says_what_to_do(tmp_path: Path) -> None:
    text = _message(_rewritten(tmp_path, format_version=3, package_version="9.1.0", digest=None, more=1))
    assert "format version 3 (written by sureshot '9.1.0')" in text
    assert "upgrade sureshot" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"format_version": 0},
        {"format_version": "1"},
        {"format_version": True},
        {"format_version": None},
        {"kind": 3},
        {"kind": None},
        {"header": []},
        {"header": {"classes": ["other"]}},
        {"digest": "0" * 64},
        {"digest": None},
        {"extra": 1},
    ],
)
def test_malformed_metadata(tmp_path: Path, changes: dict) -> None:
    assert "is damaged or was not saved by sureshot" in _message(_rewritten(tmp_path, **changes))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "null",
        "[" * 100_000,
        '{"format_version": 1' + "0" * 5000 + "}",
        '{"format_version": NaN}',
        '{"format_version": 1e999}',
        '{"format_version": 1, "format_version": 1}',
        '{"format_version": 1, "kind": "a", "package_version": "1", "digest": "", "header": {"a": '
        + "[" * 900
        + "]" * 900
        + "}}",
    ],
)
def test_hostile_metadata(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hostile"
    save_file({"x": np.zeros(3)}, path, metadata={"sureshot": text})
    assert "is damaged or was not saved by sureshot" in _message(path)


@pytest.mark.parametrize(
    "layout",
    [
        b"not json",
        b'{"x": {"dtype": "F64", "shape": [1000000000000], "data_offsets": [0, 8000000000000]}}',
        b'{"x": {"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]}}',
        b'{"x": {"dtype": "F64", "shape": [1], "data_offsets": [8, 0]}}',
        b'{"x": {"dtype": "F64", "shape": [18446744073709551615, 2], "data_offsets": [0, 8]}}',
        b'{"x": {"dtype": "object", "shape": [1], "data_offsets": [0, 8]}}',
        b'{"x": {"dtype": "F64", "shape": [1]}}',
        b'{"__metadata__": {"sureshot": 1}}',
        b'{"__metadata__": 1}',
        b"[" * 1000,
        b"",
    ],
)
def test_hostile_layouts(tmp_path: Path, layout: bytes) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(struct.pack("<Q", len(layout)) + layout + bytes(8))
    _message(path)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 10**9, 0])
def test_absurd_header_lengths(tmp_path: Path, length: int) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(struct.pack("<Q", length) + b"{}" + bytes(100))
    _message(path)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    whole = _saved(tmp_path).read_bytes()
    path = tmp_path / "cut"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        _message(path)
    path.write_bytes(whole + b"\0")
    _message(path)


FUZZ = settings(max_examples=200, derandomize=True, suppress_health_check=list(HealthCheck))


def _load_or_refuse(raw: bytes) -> Artifact | None:
    """What loading these bytes gives; anything but an artefact or an `ArtifactError` fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fuzz"
        path.write_bytes(raw)
        try:
            return load_artifact(path)
        except ArtifactError as error:
            lines = str(error).splitlines()
    assert len(lines) == 1
    return None


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return _saved(tmp_path_factory.mktemp("valid")).read_bytes()


@FUZZ
@given(st.binary(max_size=300))
def test_random_bytes_never_load(raw: bytes) -> None:
    assert _load_or_refuse(raw) is None


@FUZZ
@given(st.binary(max_size=100), st.binary(max_size=100))
def test_random_headers_of_the_right_length_never_load(header: bytes, body: bytes) -> None:
    assert _load_or_refuse(struct.pack("<Q", len(header)) + header + body) is None


@FUZZ
@given(data=st.data())
def test_flipped_bits_are_refused_or_harmless(valid: bytes, data: st.DataObject) -> None:
    raw = bytearray(valid)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    artifact = _load_or_refuse(bytes(raw))
    assert artifact is None or _same(artifact)


@FUZZ
@given(data=st.data())
def test_removed_doubled_and_replaced_pieces_are_refused_or_harmless(valid: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(valid)))
    stop = data.draw(st.integers(start, min(start + 50, len(valid))))
    piece = data.draw(st.one_of(st.just(b""), st.just(2 * valid[start:stop]), st.binary(max_size=50)))
    artifact = _load_or_refuse(valid[:start] + piece + valid[stop:])
    assert artifact is None or _same(artifact)
