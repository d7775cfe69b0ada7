"""A user's own inputs: checked against what a model takes, known by their content."""

import io

import ml_dtypes
import numpy as np
import pytest

from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.array_files import UserInputError
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.workloads import workload_of

CASES = catalog.all_benchmarks()


def cases(name):
    return catalog.select(CASES, name=f"models/{name}/inputs/.+")


BERT = cases("BERT_TINY_FP32_(PT|JAX)_32XI32_BATCH1")
RESNET_BF16 = cases("RESNET_TINY_BF16_JAX_.+_BATCH1")
IDS = np.arange(32, dtype=np.int32).reshape(1, 32)
MASK = np.ones((1, 32), np.int32)


@pytest.fixture
def save(tmp_path):
    """Writes arrays as inputs into a folder."""

    def write(*values, folder="inputs", start=0):
        directory = tmp_path / folder
        directory.mkdir(exist_ok=True)
        for index, value in enumerate(values):
            np.save(directory / f"input_{index + start}.npy", value)
        return directory

    return write


def test_models_get_one_case_each_named_after_the_content(save):
    llama = cases("LLAMA_TINY_FP32_(PT|JAX)_32XI32_BATCH1")
    inputs = array_files.read_user_inputs(save(IDS))
    found = array_files.cases_with(llama, inputs)
    assert len({case.model.name for case in llama}) == len(found) == 2 < len(llama)
    for case in found:
        assert case.name == f"models/{case.model.name}/inputs/USER_{inputs.sha256[:8]}"
        assert workload_of(case).input_digest == inputs.sha256
    assert len({workload_of(case).digest for case in found}) == 1
    assert workload_of(found[0]).digest not in {workload_of(case).digest for case in llama}


def test_the_same_numbers_are_the_same_inputs_wherever_they_lie(save):
    one, other = save(IDS, MASK), save(np.asfortranarray(IDS), MASK.copy(), folder="other")
    assert array_files.read_user_inputs(one).sha256 == array_files.read_user_inputs(other).sha256


@pytest.mark.parametrize(
    "values",
    [
        (IDS + 1, MASK),
        (MASK, IDS),
        (IDS.astype(np.int64), MASK),
        (IDS.reshape(32, 1), MASK),
        (IDS,),
        (IDS.view(np.float32), MASK),
    ],
)
def test_other_numbers_types_shapes_or_orders_are_other_inputs(save, values):
    assert (
        array_files.read_user_inputs(save(IDS, MASK)).sha256
        != array_files.read_user_inputs(save(*values, folder="other")).sha256
    )


def test_bfloat16_is_read_as_such(save):
    pixels = np.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32).astype(ml_dtypes.bfloat16)
    inputs = array_files.read_user_inputs(save(pixels))
    assert [str(spec) for spec in inputs.specs] == ["1x3x32x32xbf16"]
    assert len(array_files.cases_with(RESNET_BF16, inputs)) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            (IDS.astype(np.int64), MASK),
            r"input_0.npy is 1x32xi64, but BERT_TINY_\w+ takes 1x32xi32",
        ),
        ((IDS, MASK[:, :31]), r"input_1.npy is 1x31xi32, but BERT_TINY_\w+ takes 1x32xi32"),
        ((IDS[0], MASK), "input_0.npy is 32xi32, but"),
        ((IDS.astype(np.float32), MASK), "input_0.npy is 1x32xf32, but"),
        ((IDS,), r"number of inputs is 1, but BERT_TINY_\w+ takes 2: 1x32xi32, 1x32xi32"),
        ((IDS, MASK, MASK), r"number of inputs is 3, but"),
    ],
)
def test_inputs_that_a_model_does_not_take_are_refused(save, values, message):
    with pytest.raises(UserInputError, match=message):
        array_files.cases_with(BERT, array_files.read_user_inputs(save(*values)))


def test_a_float32_input_is_not_cast_to_the_models_type(save):
    pixels = np.linspace(-1, 1, 3 * 32 * 32, dtype=np.float32).reshape(1, 3, 32, 32)
    with pytest.raises(UserInputError, match=r"1x3x32x32xf32, but RESNET.+ takes 1x3x32x32xbf16"):
        array_files.cases_with(RESNET_BF16, array_files.read_user_inputs(save(pixels)))


def test_a_model_that_declares_nothing_can_not_be_checked(save):
    with pytest.raises(UserInputError, match="EXAMPLE_FP32_PT_BATCH1 does not declare its inputs"):
        array_files.cases_with(
            cases("EXAMPLE_FP32_PT_BATCH1"), array_files.read_user_inputs(save(IDS))
        )


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_judge_nothing_are_refused(save, value, dtype):
    with pytest.raises(UserInputError, match=r"input_0.npy contains NaN or infinity"):
        array_files.read_user_inputs(save(np.array([[1.0, value]], dtype)))


def test_a_missing_folder_file_or_number_is_named(save, tmp_path):
    with pytest.raises(UserInputError, match="nowhere is not a directory"):
        array_files.read_user_inputs(tmp_path / "nowhere")
    with pytest.raises(UserInputError, match=r"no input_0.npy; it contains no inputs"):
        array_files.read_user_inputs(save())
    with pytest.raises(UserInputError, match=r"no input_0.npy; it contains input_1.npy"):
        array_files.read_user_inputs(save(IDS, folder="late", start=1))


def _archive():
    file = io.BytesIO()
    np.savez(file, IDS)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"no array", b"\x93NUMPY\x01\x00v\x00{'shape'", _archive(), b"PK\x03\x04 damaged"],
    ids=["empty", "text", "truncated", "archive", "damaged archive"],
)
def test_a_file_that_is_no_array_is_named(save, content):
    directory = save(IDS)
    (directory / "input_1.npy").write_bytes(content)
    with pytest.raises(UserInputError, match=r"input_1.npy is not an array"):
        array_files.read_user_inputs(directory)


def test_python_objects_are_never_unpickled(save):
    with pytest.raises(UserInputError, match=r"input_0.npy is not an array"):
        array_files.read_user_inputs(save(np.array([{"a": 1}], dtype=object)))


def test_ten_inputs_are_in_the_order_of_their_numbers(save):
    values = [np.full((1, 2), index, np.int32) for index in range(11)]
    paths = array_files.user_input_files(save(*values))
    assert [int(np.load(path)[0, 0]) for path in paths] == list(range(11))
