"""Operators in profiles of each stack's format, recorded where the stack could be asked for one."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comparative_benchmark.backends import operator_profile
from comparative_benchmark.backends.operator_profile import Operator, own_times, read_trace
from comparative_benchmark.iree import profiler as iree
from comparative_benchmark.onnxruntime import session as onnxruntime
from comparative_benchmark.openvino import backend as openvino
from comparative_benchmark.pt_inductor import profiler as pytorch
from comparative_benchmark.results import published
from comparative_benchmark.results.comparing.explanations import kind_of
from comparative_benchmark.tf_xla import profiler as tensorflow

RECORDED = Path(__file__).parents[2] / "data" / "operator_profiles"
STACK = {"stack": "a stack"}


def by_name(profile):
    return {operator.name: operator for operator in profile.operators}


def test_only_the_innermost_span_of_a_thread_is_at_work():
    spans = [("outer", 1, 0, 10), ("inner", 1, 2, 5), ("inner", 1, 6, 7), ("leaf", 1, 3, 4)]
    assert own_times(spans) == {"outer": 6, "inner": 3, "leaf": 1}


def test_threads_that_work_at_once_share_the_time():
    assert own_times([("a", 1, 0, 4), ("b", 2, 2, 6)]) == {"a": 3, "b": 3}
    # Spans that start or end together nest by their length, in whatever order they come.
    assert own_times([("in", 1, 0, 2), ("out", 1, 0, 3)]) == {"in": 2, "out": 1}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 30), st.integers(0, 30)
        ),
        max_size=12,
    )
)
def test_times_add_up_to_when_anything_ran(cut):
    # Spans of a row follow one another, as in a thread that calls nothing.
    ends, spans = {}, []
    for name, row, gap, length in cut:
        start = ends.get(row, 0) + gap
        ends[row] = start + length
        spans.append((name, row, float(start), float(start + length)))
    busy = {tick for _, _, start, end in spans for tick in range(int(start), int(end))}
    assert sum(own_times(spans).values()) == pytest.approx(len(busy))


def test_xla_operators_do_what_is_fused_into_them():
    hlo = (RECORDED / "xla.hlo.txt").read_text()
    events = read_trace(RECORDED / "xla.trace.json")
    profile = operator_profile.profile_of(events, hlo, **STACK, iterations=2)
    found = by_name(profile)
    assert len(found) == 6
    product = found["ynn_fusion.23"]
    assert (product.does, product.calls) == ("dot", 1)
    assert product.flops == 2 * 32 * 128 * 128
    assert product.bytes == 4 * (32 * 128 + 128 * 128 + 32 * 128)
    assert found["ynn_fusion.21"].flops == 2 * 2 * 32 * 32 * 64
    assert found["ynn_fusion.25"].does == "reduce"
    kinds = {name: kind_of(operator) for name, operator in found.items()}
    assert kinds["bitcast_add_fusion"] == "embeddings and gathers"
    assert kinds["broadcast_subtract_fusion.4"] == "elementwise"
    assert kinds["add_reduce_fusion.1"] == "reductions"
    spans = [event for event in events if "args" in event]
    assert profile.us == pytest.approx(sum(event["dur"] for event in spans) / 2)
    assert set(profile.fusions) == {"3 library fusions", "3 generated fusions"}


def test_a_program_of_which_xla_tells_no_times_is_listed():
    hlo = (RECORDED / "xla.hlo.txt").read_text()
    profile = operator_profile.profile_of([], hlo, **STACK, iterations=2)
    assert profile.us is None
    assert by_name(profile)["ynn_fusion.23"].flops
    assert "reported no operators" in profile.remarks[0]


def test_iree_dispatches_have_their_shape_in_their_name():
    profile = iree.profile_of(read_trace(RECORDED / "iree.trace.json"), 1, **STACK)
    found = by_name(profile)
    # The trace has two executions, as of a loop.
    assert profile.iterations == 1
    wide = found["main_dispatch_16_matmul_32x512x128_f32"]
    assert (wide.does, wide.calls) == ("matmul_32x512x128_f32", 4)
    assert wide.flops == 4 * 2 * 32 * 512 * 128
    batched = found["main_dispatch_10_batch_matmul_2x32x32x64_f32"]
    assert batched.flops == 4 * (2 * 2 * 32 * 32 * 64)
    assert kind_of(found["main_dispatch_2_reduction_32x128_f32"]) == "reductions"
    assert profile.fusions == ("dispatches: 72, kernels: 12",)


def test_onnxruntime_tells_no_shape_of_weights_that_it_packed():
    events = json.loads((RECORDED / "onnxruntime.json").read_text())
    profile = onnxruntime.profile_of(events, 1, **STACK, provider="CPUExecutionProvider")
    found = by_name(profile)
    assert profile.iterations == 1
    assert found["mm"].flops == 2 * 32 * 512 * 128
    assert found["mm"].bytes == 4 * (32 * 128 + 128 * 512 + 32 * 512)
    [fused] = [operator for operator in profile.operators if operator.does == "FusedMatMul"]
    assert fused.flops == 2 * 32 * 32 * 512
    assert profile.us == 50 + 17 + 9
    assert profile.fusions == ("1 FusedMatMul",)
    assert profile.fallbacks == ()


def node(name, op, dur, *, ts, provider="CPUExecutionProvider", shapes=(), output=()):
    arguments = {"op_name": op, "provider": provider}
    if shapes:
        arguments["input_type_shape"] = [{"float": list(shape)} for shape in shapes]
        arguments["output_type_shape"] = [{"float": list(output)}]
    event = {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "tid": 1}
    return {**event, "args": arguments}


def test_onnxruntime_nodes_on_another_provider_are_fallbacks():
    events = [
        {"cat": "Session", "name": "model_run", "ts": 0, "dur": 500, "args": {}},
        node("warm", "MatMul", 400, ts=10),
        {"cat": "Session", "name": "model_run", "ts": 1000, "dur": 80, "args": {}},
        node("mm", "MatMul", 30, ts=1001, shapes=[(1, 32, 128), (128, 512)], output=(1, 32, 512)),
        node("bmm", "FusedMatMul", 10, ts=1040, shapes=[(2, 8, 4), (2, 4, 8)], output=(2, 8, 8)),
        node("odd", "MatMul", 1, ts=1055, shapes=[(2, 8, 4), (1, 4, 8)], output=(2, 8, 8)),
        node("far", "NonZero", 5, ts=1060, provider="CPUExecutionProvider"),
    ]
    profile = onnxruntime.profile_of(events, 1, **STACK, provider="CUDAExecutionProvider")
    found = by_name(profile)
    assert "warm" not in found
    assert found["mm"].flops == 2 * 32 * 128 * 512
    assert found["bmm"].flops == 2 * 2 * 8 * 8 * 4
    assert found["odd"].flops is None
    assert profile.us == 46
    assert profile.fusions == ("1 FusedMatMul",)
    assert "1 NonZero on CPUExecutionProvider instead of CUDAExecutionProvider" in profile.fallbacks
    alone = onnxruntime.profile_of(events, 1, **STACK, provider="CPUExecutionProvider")
    assert alone.fallbacks == ()


def test_openvino_layers_by_reference_kernels_are_fallbacks():
    layers = {
        "fc": {"layer": "FullyConnected", "kernel": "brgemm_avx512_f32", "times_us": [10.0, 20.0]},
        "x": {"layer": "Loop", "kernel": "ref_any_f32", "times_us": [4.0]},
    }
    profile = openvino.profile_of(layers, 2, **STACK, left_out=7)
    assert [(each.name, each.us, each.calls) for each in profile.operators] == [
        ("fc", 15.0, 1.0),
        ("x", 2.0, 0.5),
    ]
    assert profile.fallbacks == ("1 Loop in a reference kernel",)
    assert profile.fusions[0].startswith("layers fused into others")


def span(name, ts, dur, cat="cpu_op", **arguments):
    event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
    return {**event, "args": arguments}


def test_pytorch_products_have_their_shape_in_their_name():
    dims = [[512], [32, 128], [128, 512], [], []]
    types = ["float", "float", "float", "Scalar", "Scalar"]
    events = [
        span("iteration", 0, 100, cat="user_annotation"),
        span("aten::linear", 1, 50),
        span("aten::addmm", 5, 40, **{"Input Dims": dims, "Input type": types}),
        span("aten::gelu", 60, 20),
    ]
    profile = pytorch.profile_of(events, **STACK, iterations=1, breaks={}, compiled=False)
    found = by_name(profile)
    assert found["aten::addmm 32x512x128"].flops == 2 * 32 * 512 * 128
    assert found["aten::linear"].us == 10
    assert profile.us == 70
    assert profile.remarks == ()


def test_inductor_kernels_say_what_was_fused_and_dynamo_why_it_broke():
    events = [
        span("## Call CompiledFxGraph abc ##", 0, 50, cat="user_annotation"),
        span("graph_0_cpp_fused_add_native_layer_norm_2", 10, 20),
    ]
    breaks = {"Call to `breakpoint`\n  Explanation: no": 1, "print": 3}
    profile = pytorch.profile_of(events, **STACK, iterations=1, breaks=breaks, compiled=True)
    found = by_name(profile)
    [kernel] = [operator for name, operator in found.items() if "cpp_fused" in name]
    assert kernel.does == "add native layer norm"
    assert kind_of(kernel) == "normalisation"
    assert kind_of(found["compiled graph"]) == "runtime"
    assert profile.breaks == ("3 x print", "1 x Call to `breakpoint` Explanation: no")
    assert profile.fusions == ("fused kernels: 1 (calls: 1), library calls: 0",)
    without = pytorch.profile_of(events[:1], **STACK, iterations=1, breaks={}, compiled=True)
    assert "--again" in without.remarks[0]


def test_on_a_gpu_kernels_count_and_not_who_starts_them():
    events = [span("aten::mm", 0, 50), span("sgemm", 10, 20, cat="kernel")]
    profile = pytorch.profile_of(events, **STACK, iterations=1, breaks={}, compiled=False)
    assert [(each.name, each.us) for each in profile.operators] == [("sgemm", 20)]


def test_tensorflow_operations_next_to_xla_are_out_of_the_cluster():
    events = [
        span("StatefulPartitionedCall:StatefulPartitionedCall", 0, 40, cat=""),
        span("ynn_fusion.23", 5, 30, cat="", hlo_op="ynn_fusion.23"),
        span("model/Unique:Unique", 50, 8, cat=""),
    ]
    hlo = (RECORDED / "xla.hlo.txt").read_text()
    profile = tensorflow.profile_of(events, hlo, **STACK, iterations=1)
    assert by_name(profile).keys() == {"ynn_fusion.23", "model/Unique"}
    assert profile.us == 38
    assert profile.fallbacks == ("1 Unique outside the XLA cluster",)
    # Where nothing is compiled, nothing is outside.
    assert tensorflow.profile_of(events[2:], "", **STACK, iterations=1).fallbacks == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"stack": 1}',
        json.dumps(
            {"stack": "s", "iterations": 1, "operators": [{"name": "x", "us": -1}]}
        ).encode(),
        b'{"stack": "s", "iterations": 1, "operators": [{"name": "x", "us": 1e999}]}',
    ],
)
def test_a_file_that_is_no_profile_is_refused(tmp_path, content):
    path = tmp_path / operator_profile.FILE
    path.write_bytes(content)
    with pytest.raises(ValueError):
        published.read(path)


def test_a_profile_is_read_as_it_was_written(tmp_path):
    operators = (Operator(name="x", us=1.0, flops=2.0), Operator(name="y"))
    profile = operator_profile.OperatorProfile(
        stack="s", iterations=3, operators=operators, breaks=("a",)
    )
    assert published.read(operator_profile.write(profile, tmp_path)) == profile
