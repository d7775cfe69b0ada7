"""Exported programs as models: their outline is read and checked without a framework."""

import os
import struct

import numpy as np
import pytest

from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.user_models import (
    ModelOptions,
    Recorded,
    UserModelError,
    command_words,
    find_cases,
    is_model,
    recorded_model,
)
from openxla.benchmark.user_models.programs.signature import Argument, Signature
from openxla.benchmark.workloads import workload_of


def varint(number):
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def field(number, value):
    """A field of a protocol buffer: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def declared(name, kind, *sizes):
    dims = b"".join(field(1, field(2 if isinstance(s, str) else 1, s)) for s in sizes)
    tensor = field(1, kind) + field(2, dims)
    return field(1, name) + field(2, field(1, tensor))


def weight(name, sizes, external=None, kind=1):
    entries = external or {}
    content = b"".join(field(1, size) for size in sizes) + field(2, kind) + field(8, name)
    for key, value in entries.items():
        content += field(13, field(1, key) + field(2, value))
    return content + (field(14, 1) if entries else field(9, struct.pack("<f", 1.0)))


def onnx_bytes(*, inputs, weights=(), nodes=(), opset=20):
    graph = b"".join(field(1, node) for node in nodes)
    graph += b"".join(field(5, item) for item in weights)
    graph += b"".join(field(11, item) for item in inputs)
    return field(1, 10) + field(8, field(2, opset)) + field(7, graph)


LOOKUP = field(1, "table") + field(1, "wide") + field(2, "y") + field(4, "Gather")
CAST = field(1, "ids") + field(2, "wide") + field(4, "Cast")
INPUTS = (declared("ids", 7, "batch", "seq"), declared("x", 1, "batch", "seq", 16))
TAKES = "net.onnx takes ids i64[batch,seq], x f32[batch,seq,16]"


@pytest.fixture
def net(tmp_path):
    content = onnx_bytes(inputs=INPUTS, weights=[weight("table", [50, 16])], nodes=[CAST, LOOKUP])
    (tmp_path / "net.onnx").write_bytes(content)
    return tmp_path / "net.onnx"


def cases(path, **wanted):
    return find_cases(path.name, ModelOptions(folder=path.parent, **wanted)).cases


def refusal(path, **wanted):
    with pytest.raises(UserModelError) as raised:
        cases(path, **wanted)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_inputs_follow_from_the_signature(net):
    first, second = cases(net, batch_sizes=(1, 4), seq_lens=(8,))
    assert first.model.name == "NET_FP32_ONNX_SEQLEN8_BATCH1"
    assert first.model.model_impl.framework_type is ModelFrameworkType.ONNX
    # Tokens are rows of the table that they look up.
    assert first.model.model_parameters["inputs"] == "i64[1,8]<50; f32[1,8,16]"
    assert second.model.model_parameters["inputs"] == "i64[4,8]<50; f32[4,8,16]"
    assert workload_of(first).digest != workload_of(second).digest


def test_identity_is_the_bytes_and_the_way_back_names_the_inputs(net, tmp_path):
    (case,) = cases(net, inputs=("i64[batch,4]<9", "f32[batch,4,16]"), batch_sizes=(2,))
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "net.onnx").write_bytes(net.read_bytes())
    wanted = {"inputs": ("i64[2,4]<9", "f32[2,4,16]"), "batch_sizes": ()}
    (moved,) = cases(other / "net.onnx", **wanted)
    assert (
        moved.model.model_parameters["source_sha256"]
        == (case.model.model_parameters["source_sha256"])
    )
    recorded = Recorded(
        model=case.model.name,
        parameters=case.model.model_parameters,
        framework="onnx",
        input_data=case.input_data.name,
    )
    words = command_words(recorded)
    assert words == f"{net} --input 'i64[batch,4]<9' --input 'f32[batch,4,16]' --batch 2"
    assert find_cases(*recorded_model(recorded)).cases == [case]


def test_sizes_of_given_arrays_cannot_be_chosen(net, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    np.save(given / "input_0.npy", np.ones((4, 8), np.int64))
    np.save(given / "input_1.npy", np.ones((4, 8, 16), np.float32))
    (case,) = cases(net, inputs_dir=given)
    assert "batch_size" not in case.model.model_parameters
    for sizes in ({"batch_sizes": (1, 8)}, {"seq_lens": (8,)}):
        message = refusal(net, inputs_dir=given, **sizes)
        assert message == "--inputs determines all sizes; omit --batch and --seq-len"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({}, "set 'seq' with --seq-len"),
        ({"inputs": ("f32[1]",)}, f"{TAKES}; pass --input once for each input (got 1)"),
        ({"inputs": ("i32[1,8]<9", "f32[1,8,16]")}, f"i32[1,8]<9 has the wrong type: {TAKES}"),
        (
            {"inputs": ("i64[8]<9", "f32[1,8,16]")},
            f"i64[8]<9 has the wrong number of sizes: {TAKES}",
        ),
        ({"inputs": ("i64[1,8]<9", "f32[1,7,16]")}, f"expected 'seq' to be 8, got 7: {TAKES}"),
        ({"inputs": ("i64[1,8]<9", "f32[1,8,15]")}, f"expected 16, got 15: {TAKES}"),
        ({"data_types": ("bf16",)}, "--dtype bf16: net.onnx computes in fp32"),
        ({"task": "fill-mask"}, "--task requires a Hugging Face directory"),
        ({"framework": "jax", "seq_lens": (8,)}, "net.onnx runs only in onnx, not in jax"),
    ],
)
def test_other_inputs_say_what_the_program_takes(net, wanted, words):
    assert words in refusal(net, **wanted)


def test_sizes_without_a_meaning_are_asked_for():
    pictures = Argument(name="x", element_type="f32", sizes=(None, 3, "h", "w"))
    signature = Signature(where="net", arguments=(pictures,))
    with pytest.raises(UserModelError, match=r"net takes x f32\[\?,3,h,w\]; give the size of x"):
        signature.inputs((), 2, None)
    (spec,) = signature.inputs(("f32[batch,3,8,8]",), 2, None)
    assert str(spec) == "f32[2,3,8,8]"


def test_masks_hide_nothing_and_other_integers_are_rows_of_any_table():
    arguments = [
        Argument(name=name, element_type="i64", sizes=("batch", 4))
        for name in ("attention_mask", "positions")
    ]
    # Not all rows of the table have a number of this type.
    arguments.append(Argument(name="rows", element_type="i8", sizes=("batch", 4), below=1000))
    specs = Signature(where="net", arguments=tuple(arguments)).inputs((), None, None)
    assert list(map(str, specs)) == ["i64[1,4]=1", "i64[1,4]<2", "i8[1,4]<128"]


def test_a_file_that_is_cut_anywhere_is_reported(net):
    whole = net.read_bytes()
    for size in range(len(whole)):
        net.write_bytes(whole[:size])
        assert "net.onnx" in refusal(net, seq_lens=(8,)), size
    net.write_bytes(os.urandom(64) + whole)
    refusal(net, seq_lens=(8,))


@pytest.mark.parametrize(
    ("external", "words"),
    [
        ({"location": "gone.data"}, "'gone.data', which does not exist; copy it next to"),
        ({"location": "../up.data"}, "which is not in the folder of the .onnx file"),
        ({"location": "/etc/passwd"}, "which is not in the folder of the .onnx file"),
        ({"location": "link.data"}, "which links to a file outside the folder"),
        (
            {"location": "short.data", "offset": "4", "length": "8"},
            "up to byte 12, but that file has only 4 bytes",
        ),
    ],
)
def test_weights_in_other_files_have_to_be_beside(tmp_path, external, words):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "up.data").write_bytes(b"1234")
    (folder / "short.data").write_bytes(b"1234")
    (folder / "link.data").symlink_to(tmp_path / "up.data")
    net = folder / "net.onnx"
    content = onnx_bytes(inputs=[declared("x", 1, 4)], weights=[weight("w", [4], external)])
    net.write_bytes(content)
    assert words in refusal(net)


def test_weights_in_another_file_are_part_of_the_identity(tmp_path):
    net = tmp_path / "net.onnx"
    external = {"location": "w.data", "length": "4"}
    net.write_bytes(onnx_bytes(inputs=[declared("x", 1, 4)], weights=[weight("w", [1], external)]))
    (tmp_path / "w.data").write_bytes(b"1234")
    (before,) = cases(net)
    (tmp_path / "w.data").write_bytes(b"1235")
    (after,) = cases(net)
    assert workload_of(before).digest != workload_of(after).digest


def test_weights_in_another_file_may_begin_with_zeros(tmp_path):
    net = tmp_path / "net.onnx"
    weights = [
        weight(name, [1024], {"location": f"{name}.data", "length": "4096"}) for name in ("a", "b")
    ]
    net.write_bytes(onnx_bytes(inputs=[declared("x", 1, 4)], weights=weights))
    (tmp_path / "a.data").write_bytes(bytes(4096))
    (tmp_path / "b.data").write_bytes(bytes(4092) + b"1234")
    assert len(cases(net)) == 1
    (tmp_path / "b.data").write_bytes(bytes(4096))
    assert "net.onnx: a.data contains only zeros, so it is incomplete; download" in refusal(net)


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("my net-2.0+x", "my_net-2.0+x.ONNX"),
        ("model (1)", "model__1_.ONNX"),
        ("größe", "gr__e.ONNX"),
        ("_net", "net.ONNX"),
        ("net@v2", "net_v2.ONNX"),
        ("ß", "model.ONNX"),
    ],
)
def test_a_program_may_have_any_file_name(net, stem, name):
    (case,) = cases(net.rename(net.with_name(f"{stem}.onnx")), seq_lens=(8,))
    assert case.model.model_impl.name == name


def test_types_come_from_the_weights(tmp_path):
    net = tmp_path / "net.onnx"
    net.write_bytes(onnx_bytes(inputs=[declared("x", 10, 4)], weights=[weight("w", [4], kind=10)]))
    (case,) = cases(net)
    assert case.data_type == "fp16"
    net.write_bytes(onnx_bytes(inputs=[declared("x", 8, 4)]))
    assert "input 'x' has an unsupported type" in refusal(net)


def test_programs_are_models_and_others_are_named(tmp_path):
    assert is_model("net.onnx", tmp_path)
    with pytest.raises(UserModelError, match="was compiled by IREE for one device; pass"):
        find_cases("net.vmfb", ModelOptions(folder=tmp_path))
