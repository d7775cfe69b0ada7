"""TFLite: given files and converted models, from definition to verified result."""

import pytest
from agreement_support import need
from tests_support import run_cbs, selected

pytestmark = pytest.mark.frameworks

KINDS = {"FP32": "fp32", "FP16": "fp16-weights", "DYN_QUANT": "dynamic-range", "INT8": "int8"}


@pytest.fixture(scope="module", autouse=True)
def _stack():
    for package in ("ai_edge_litert", "tensorflow", "keras", "jax", "flax"):
        need(package)


@pytest.fixture(scope="module")
def given(tmp_path_factory, environment):
    """The BERT of each precision, models in JAX and TensorFlow of one workload, and a text."""
    return run_cbs(
        *("--backend", "tflite,jax_xla", "-w", "1", "-iter", "3", "--share-workers"),
        "-name",
        "models/(BERT_TINY_(.+_TFLITE|FP32_(JAX|TF))_32XI32_BATCH1"
        "|GPT2_TINY_GREEDY_FP32_TF_1X16XI32_8XI32)/.+_DEFAULT",
        directory=tmp_path_factory.mktemp("given"),
        environment=environment,
    )


def records(run, **wanted):
    return [
        record
        for record in run.document["benchmarks"]
        if all(record["definition"][name] == value for name, value in wanted.items())
    ]


def level(record):
    return record["metrics"]["compiler_level"]


def test_every_file_is_converted_run_and_right(given):
    assert given.code == 0, given.out + given.err
    assert len(given.statuses) == 8
    for kind, precision in KINDS.items():
        [record] = records(given, model=f"BERT_TINY_{kind}_TFLITE_32XI32_BATCH1")
        metrics, program = level(record), level(record)["program"]
        assert record["definition"]["precision"] == precision
        assert metrics["verification"]["passed"]
        assert metrics["final_verification"]["passed"]
        assert len(metrics["latencies_ms"]) == 3
        assert program["weights"] == "parameters"
        assert program["notes"]["precision"] == precision
        assert program["notes"]["origin"] == "converted"
        # The file was there before anything was compiled.
        assert {"trace", "lower"} & set(metrics["phases"]) == set()
        assert metrics["phases"]["prepare"]["ms"] > 0
        assert record["versions"]["ai-edge-litert"]


def test_results_of_a_loop_which_have_no_memory_before_it_ran_are_right(given):
    [record] = records(given, model="GPT2_TINY_GREEDY_FP32_TF_1X16XI32_8XI32")
    assert record["status"] == "ok", record["reason"]
    assert level(record)["second_verification"]["passed"]


def test_quantised_files_are_small_and_noisy_and_fp32_is_neither(given):
    sizes, errors = {}, {}
    for kind in KINDS:
        [record] = records(given, model=f"BERT_TINY_{kind}_TFLITE_32XI32_BATCH1")
        sizes[kind] = level(record)["program"]["artifact_size_bytes"]
        errors[kind] = level(record)["verification"]
    assert sizes["FP16"] < 0.6 * sizes["FP32"]
    # An embedding stays in fp32 there.
    assert sizes["DYN_QUANT"] < 0.6 * sizes["FP32"]
    assert sizes["INT8"] < 0.4 * sizes["FP32"]
    assert errors["FP32"]["sqnr_db"] is None
    assert errors["FP32"]["relative_rmse"] < 1e-6
    noise = [errors[kind]["sqnr_db"] for kind in ("FP16", "DYN_QUANT", "INT8")]
    assert noise == sorted(noise, reverse=True)
    assert 100 > noise[0] > noise[-1] > 3


def test_an_fp32_file_shares_its_workload_with_jax_and_the_others_do_not(given):
    digests = {
        record["definition"]["model"]: record["definition"]["workload"]["digest"]
        for record in given.document["benchmarks"]
    }
    jax = digests["BERT_TINY_FP32_JAX_32XI32_BATCH1"]
    same = {name for name, digest in digests.items() if digest == jax}
    assert same == {f"BERT_TINY_FP32_{name}_32XI32_BATCH1" for name in ("JAX", "TF", "TFLITE")}


def test_two_conversions_of_a_model_give_the_same_bytes(given):
    [file] = records(given, model="BERT_TINY_FP32_TFLITE_32XI32_BATCH1")
    [live] = records(given, model="BERT_TINY_FP32_TF_32XI32_BATCH1")
    program = level(live)["program"]
    assert program["artifact_sha256"] == level(file)["program"]["artifact_sha256"]


def test_a_conversion_has_phases(given):
    for framework in ("JAX", "TF"):
        name = f"BERT_TINY_FP32_{framework}_32XI32_BATCH1"
        [live] = records(given, model=name, backend="tflite")
        for phase in ("import", "load", "trace", "lower", "compile", "h2d", "first_run", "d2h"):
            assert level(live)["phases"][phase]["ms"] > 0
        assert level(live)["verification"]["relative_rmse"] < 1e-6


@pytest.mark.parametrize("framework", ["JAX", "TF"])
def test_conversion_is_no_part_of_the_workers_memory(cbs_run, framework):
    run = cbs_run(
        *("--backend", "tflite:native", "-w", "1", "-iter", "1"),
        *("-name", f"models/BERT_TINY_FP32_{framework}_32XI32_BATCH1/.+_DEFAULT"),
    )
    [live] = run.document["benchmarks"]
    # TensorFlow alone takes more.
    assert level(live)["host_memory_peak_mb"] < 300


VIT_FLOAT = "VIT_TINY_FP32_TF_32X32X3XF32_BATCH1"
VIT_INT8 = "VIT_TINY_INT8_TFLITE_3X32X32XINT8_BATCH1"


@pytest.fixture(scope="module")
def quantised(request, tmp_path_factory, environment):
    """Results of the compiler int8 for the models of the selected tests."""
    models = [
        *(VIT_FLOAT, VIT_INT8),
        *selected(request, test_masks_do_not_take_the_range_of_an_int8_file, "model"),
        *selected(request, test_what_can_not_be_quantised_is_refused_with_the_reason, "model"),
    ]
    return run_cbs(
        *("--backend", "tflite:int8", "-w", "1", "-iter", "2", "--share-workers"),
        *("-name", f"models/({'|'.join(models)})/.+_DEFAULT"),
        directory=tmp_path_factory.mktemp("quantised"),
        environment=environment,
    )


def test_a_quantising_compiler_keeps_fp32_at_the_edges(quantised):
    [record] = records(quantised, model=VIT_FLOAT)
    assert record["status"] == "ok", quantised.out
    assert record["definition"]["precision"] == "int8"
    assert record["definition"]["workload"]["data_type"] == "fp32"
    edges = level(record)["program"]["notes"]["edge_types"]
    assert edges == {"inputs": ["float32"], "outputs": ["float32"]}
    assert "masks_clamped" not in level(record)["program"]["notes"]  # it has none
    assert level(record)["verification"]["sqnr_db"] > 3


def test_an_int8_file_has_int8_edges_where_its_inputs_are_numbers(quantised):
    [record] = records(quantised, model=VIT_INT8)
    assert record["status"] == "ok", quantised.out
    edges = level(record)["program"]["notes"]["edge_types"]
    assert edges == {"inputs": ["int8"], "outputs": ["int8"]}


@pytest.mark.parametrize(
    "model",
    [
        "SD_CLIP_TINY_FP32_TF_32XI32_BATCH1",
        *(
            pytest.param(f"{name}_TINY_FP32_{of}_32XI32_BATCH1", marks=pytest.mark.nightly)
            for name, of in (("SD_CLIP", "JAX"), ("T5", "TF"), ("T5", "JAX"))
        ),
    ],
)
def test_masks_do_not_take_the_range_of_an_int8_file(quantised, model):
    """With -3.4e38 in the mask, a step is 1.3e36 and SQNR at most 9 dB."""
    [record] = records(quantised, model=model)
    assert record["status"] == "ok", quantised.out
    clamped = level(record)["program"]["notes"]["masks_clamped"]
    assert clamped["to"] == -32
    assert clamped["constants"] > 0
    assert level(record)["verification"]["sqnr_db"] > 20


REFUSED = {
    "VIT_TINY_FP16_JAX_3X32X32XF16_BATCH1": ("trace", "which TFLite computes in fp32"),
    # Quotients in JAX's error function have ranges that end the process which loads the file.
    "BERT_TINY_FP32_JAX_32XI32_BATCH1": ("compile", "int8 file (signal 6)"),
    "BERT_TINY_FP16_TFLITE_32XI32_BATCH1": ("compile", "--backend tflite or tflite:fp16"),
}


@pytest.mark.parametrize("model", REFUSED)
def test_what_can_not_be_quantised_is_refused_with_the_reason(quantised, model):
    [record] = records(quantised, model=model)
    assert record["status"] == "unsupported"
    phase, reason = REFUSED[model]
    assert record["phase"] == phase
    assert reason in record["reason"]


def test_without_xnnpack_the_same_file_is_right(cbs_run):
    run = cbs_run(
        *("--backend", "tflite:native+no-xnnpack", "-w", "1", "-iter", "2"),
        *("-name", "models/BERT_TINY_FP32_TFLITE_.+_DEFAULT"),
    )
    assert run.code == 0, run.out + run.err
    [record] = run.document["benchmarks"]
    assert level(record)["verification"]["relative_rmse"] < 1e-6
