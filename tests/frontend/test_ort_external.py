"""Checkpoints of ONNX Runtime whose parameters lie in a second file, which is sparse here and takes no room."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from repro.errors import ReproError
from repro.frontend import load_model, load_source
from repro.frontend.limits import MAX_MODEL_BYTES
from repro.frontend.ort_algorithm import algorithm_of
from repro.frontend.ort_artifacts import CHECKPOINT, EVALUATION, OPTIMIZER, TRAINING, joined
from repro.frontend.ort_checkpoint import DATA, SavedState, SavedTensor, read_checkpoint
from repro.frontend.training_info import training_step
from repro.ir.types import F32
from tests.frontend.record_ort_training import ARTIFACTS, EXTERNAL, EXTERNAL_SHAPE, ROWS

CONTENT = (ARTIFACTS / "external" / "checkpoint").read_bytes()
BYTES = 4 * int(np.prod(EXTERNAL_SHAPE))
OFFSETS = [number * BYTES for number in range(len(EXTERNAL))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the second file as ONNX Runtime wrote it."""
    with (tmp_path / DATA).open("wb") as file:
        for number in range(len(EXTERNAL)):
            file.seek(number * BYTES)
            file.write(np.array([number + 1, 2, 3, 4], np.float32).tobytes())
            file.seek((number + 1) * BYTES - 4)
            file.write(np.float32(number + 10).tobytes())
    return tmp_path


def test_tensors_are_mapped_where_they_lie(folder: Path) -> None:
    state = read_checkpoint(CONTENT, folder)
    found = {tensor.name: tensor for tensor in (*state.trained, *state.frozen)}
    assert found.keys() == {*EXTERNAL, "b", "f"}
    for number, name in enumerate(EXTERNAL):
        flat = found[name].array.reshape(-1)
        assert found[name].array.shape == EXTERNAL_SHAPE
        assert flat[:5].tolist() == [number + 1, 2, 3, 4, 0]
        assert flat[-2:].tolist() == [0, number + 10]
        fields = {entry.key: entry.value for entry in found[name].initializer.external_data}
        assert fields == {"location": DATA, "offset": str(OFFSETS[number]), "length": str(BYTES)}
    assert found["b"].array.tolist() == [1.5, 2.5, 3.5]
    assert found["f"].array.tolist() == [7, 8, 9, 10, 11]
    assert state.group is None


def test_a_second_file_that_is_missing_or_short_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ReproError, match="came without a folder"):
        read_checkpoint(CONTENT)
    with (folder / DATA).open("rb+") as file:
        file.truncate(3 * BYTES - 1)
    with pytest.raises(ReproError, match="too short: tensor 'w2'"):
        read_checkpoint(CONTENT, folder)
    (folder / DATA).unlink()
    with pytest.raises(ReproError, match="external data is missing"):
        read_checkpoint(CONTENT, folder)


def test_tensors_that_overlap_are_refused(folder: Path) -> None:
    with (folder / DATA).open("rb+") as file:
        file.truncate(3 * BYTES)
    second, third = (np.int64(offset).tobytes() for offset in OFFSETS[1:])
    assert CONTENT.count(second) == CONTENT.count(third) == 1
    moved = CONTENT.replace(third, second)
    assert len(read_checkpoint(moved, folder).trained) == 4  # as many bytes as there are, though some are read twice
    with (folder / DATA).open("rb+") as file:
        file.truncate(2 * BYTES)
    with pytest.raises(ReproError, match="damaged"):
        read_checkpoint(moved, folder)


def test_a_step_reads_its_parameters_there(tmp_path: Path) -> None:
    """The same step, one weight of it in the second file."""
    artifacts = Path(shutil.copytree(ARTIFACTS / "digits_mlp", tmp_path / "artifacts"))
    saved = read_checkpoint((artifacts / CHECKPOINT).read_bytes())
    largest = max(saved.trained, key=lambda tensor: tensor.array.nbytes)
    (artifacts / DATA).write_bytes(b"spare" + largest.array.tobytes())
    proto = onnx.TensorProto(name=largest.name, data_type=onnx.TensorProto.FLOAT, dims=largest.array.shape)
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": DATA, "offset": "5", "length": str(largest.array.nbytes)}.items():
        proto.external_data.add(key=key, value=value)
    outside = SavedTensor(largest.name, F32, largest.array, proto)
    trained = tuple(outside if tensor is largest else tensor for tensor in saved.trained)
    training, optimizer, evaluation = (load_model(artifacts / name).proto for name in (TRAINING, OPTIMIZER, EVALUATION))
    parts = training, optimizer, evaluation, dataclasses.replace(saved, trained=trained)
    found = training_step(load_model(joined(*parts), artifacts), {"N": ROWS})
    expected = training_step(load_source(ARTIFACTS / "digits_mlp"), {"N": ROWS})
    assert found.graph.digest == expected.graph.digest
    for mine, reference in zip(found.state, expected.state, strict=True):
        assert (mine.name, mine.initial.tobytes()) == (reference.name, reference.initial.tobytes())


def test_state_over_the_limit_is_refused_before_it_is_made() -> None:
    folder = ARTIFACTS / "digits_mlp"
    training, optimizer, evaluation = (
        onnx.load(str(folder / name)).graph for name in (TRAINING, OPTIMIZER, EVALUATION)
    )
    saved = read_checkpoint((folder / CHECKPOINT).read_bytes())
    first = saved.trained[0]
    huge = np.broadcast_to(np.float32(0), (MAX_MODEL_BYTES // 4 + 1,))  # of one element's memory
    trained = (dataclasses.replace(first, array=huge), *saved.trained[1:])
    with pytest.raises(ReproError, match="over the size limit"):
        algorithm_of(training, optimizer, evaluation, SavedState(trained, saved.frozen, None))
