"""Arrays on disk."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openxla.benchmark.artifacts import array_files

TYPES = [
    *(np.float64, np.float32, np.float16, ml_dtypes.bfloat16),
    *(np.int8, np.int32, np.int64, np.uint8, np.bool_),
]


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 0, 3)])
def test_an_array_comes_back_as_it_was_saved(tmp_path, dtype, shape, memory_map):
    if memory_map and 0 in shape:
        memory_map = False  # numpy maps no empty file
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    (saved,) = array_files.save_all(tmp_path, "x", [value])
    loaded = array_files.load(tmp_path / saved["file"], memory_map=memory_map)
    assert loaded.dtype == value.dtype
    assert loaded.shape == value.shape
    assert loaded.tobytes() == value.tobytes()
    assert saved["shape"] == list(shape)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=20))
def test_every_bit_of_bfloat16_survives(tmp_path, words):
    value = np.array(words, np.uint16).view(ml_dtypes.bfloat16)
    (saved,) = array_files.save_all(tmp_path, "x", [value])
    assert saved["dtype"] == "bf16"
    loaded = array_files.load(tmp_path / saved["file"])
    assert loaded.dtype == ml_dtypes.bfloat16
    assert loaded.view(np.uint16).tolist() == words


def test_files_come_in_the_order_of_their_numbers(tmp_path):
    array_files.save_all(tmp_path, "input", [np.full((2,), index) for index in range(12)])
    assert [path.name for path in array_files.numbered(tmp_path, "input")] == [
        f"input_{index}.npy" for index in range(12)
    ]
    assert [int(value[0]) for value in array_files.load_all(tmp_path, "input")] == list(range(12))


def test_files_without_a_number_are_ignored(tmp_path):
    array_files.save_all(tmp_path, "input", [np.zeros(2)])
    for name in ("input_mask.npy", "input_0b.npy", "input_.npy", "input_-1.npy", "input_1.txt"):
        np.save(tmp_path / "other.npy", np.zeros(2))
        (tmp_path / "other.npy").rename(tmp_path / name)
    assert array_files.numbered(tmp_path, "input") == [tmp_path / "input_0.npy"]


def test_a_pickled_file_is_refused_and_not_run(tmp_path):
    path = tmp_path / "x_0.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    for memory_map in (False, True):
        with pytest.raises(ValueError, match=r"allow_pickle|Python objects"):
            array_files.load(path, memory_map=memory_map)


def test_objects_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle"):
        array_files.save_all(tmp_path, "x", [np.array([object()])])


@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY\x01\x00", b"PK\x03\x04"])
def test_a_file_that_is_no_array_is_a_value_error(tmp_path, content):
    path = tmp_path / "x_0.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError):
        array_files.load(path)


def test_a_truncated_array_is_a_value_error(tmp_path):
    (saved,) = array_files.save_all(tmp_path, "x", [np.arange(100)])
    path = tmp_path / saved["file"]
    path.write_bytes(path.read_bytes()[:-8])
    for memory_map in (False, True):
        with pytest.raises(ValueError):
            array_files.load(path, memory_map=memory_map)
