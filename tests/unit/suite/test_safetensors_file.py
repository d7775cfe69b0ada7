"""Our reader and the library's agree, and other files are refused."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from openxla.benchmark.models import checkpoint_tensors
from openxla.benchmark.models.checkpoint_tensors import SafetensorsFile

TENSORS = {
    "f64": np.linspace(0, 1, 6).reshape(2, 3),
    "f32": np.arange(5, dtype=np.float32),
    "f16": np.arange(4, dtype=np.float16).reshape(2, 2),
    "bf16": np.arange(3).astype(ml_dtypes.bfloat16),
    "i64": np.array(7, np.int64),
    "i32": np.zeros((0, 3), np.int32),
    "u8": np.arange(3, dtype=np.uint8),
    "i8": np.arange(-2, 1, dtype=np.int8),
    "i16": np.arange(2, dtype=np.int16),
    "u16": np.arange(2, dtype=np.uint16),
    "u32": np.arange(2, dtype=np.uint32),
    "u64": np.arange(2, dtype=np.uint64),
    "bool": np.array([True, False, True]),
}
NAMES = {name: name.upper() for name in TENSORS}


def _equal(left, right):
    assert sorted(left) == sorted(right)
    for name in right:
        assert left[name].dtype == right[name].dtype
        assert left[name].shape == right[name].shape
        assert left[name].tobytes() == right[name].tobytes()


def test_we_read_what_the_library_writes(tmp_path):
    path = tmp_path / "weights"
    plain = {name: value for name, value in TENSORS.items() if name != "bf16"}
    save_file(plain, path)
    _equal(SafetensorsFile(path), plain)


def test_both_read_what_we_write(tmp_path):
    path = tmp_path / "weights"
    signatures = {name: (NAMES[name], value.shape) for name, value in TENSORS.items()}
    checkpoint_tensors.write_safetensors(path, signatures, TENSORS.__getitem__)
    _equal(SafetensorsFile(path), TENSORS)
    _equal(load_file(path), TENSORS)


def test_renamed_tensors_are_the_same_tensors(tmp_path):
    path = tmp_path / "weights"
    save_file({"bert.a": TENSORS["f32"]}, path)
    file = SafetensorsFile(path).renamed(lambda name: name.removeprefix("bert."))
    assert list(file) == ["a"]
    assert np.array_equal(file["a"], TENSORS["f32"])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"\xff" * 16,
        (4).to_bytes(8, "little") + b"nope",
        (2).to_bytes(8, "little") + b"[]",
        *(
            len(text).to_bytes(8, "little") + text + bytes(8)
            for text in (
                json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": span}}).encode()
                for dtype, shape, span in [
                    ("F99", [1], [0, 4]),
                    ("F32", [1], None),
                    ("F32", [1], [4]),
                    ("F32", [1], [0, 8]),
                    ("F32", [2], [0, 4]),
                    ("F32", [1], [4, 0]),
                    ("F32", [1], [-4, 0]),
                    ("F32", [-1, -1], [0, 4]),
                ]
            )
        ),
    ],
)
def test_what_is_no_checkpoint_is_refused_by_name(tmp_path, content):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"weights\.safetensors is not a valid safetensors file"):
        SafetensorsFile(path)


def test_a_truncated_file_is_an_error_when_its_tensor_is_read(tmp_path):
    path = tmp_path / "weights"
    save_file({"a": TENSORS["f32"]}, path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError):
        SafetensorsFile(path)["a"]
