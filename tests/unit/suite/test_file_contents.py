"""Files are recognised by their content before any parser complains; refusals name a way out."""

import collections
import json
import pickle
import signal
import sys
import zipfile
from pathlib import Path

import pytest
from test_exported_programs import declared, field, onnx_bytes

from openxla.benchmark import bounded
from openxla.benchmark.files import substitute_of
from openxla.benchmark.user_models import (
    ModelOptions,
    UserModelError,
    command_words,
    find_cases,
    is_model,
)
from openxla.benchmark.user_models.cases import Recorded, find_cases_bounded

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
SUBSTITUTES = {
    "lfs": (LFS, "is a Git LFS pointer; run `git lfs pull`"),
    "annex": (b"/annex/objects/SHA256E-s9--0.onnx\n", "is a git-annex pointer"),
    "page": (b"\n<!DOCTYPE html><html><head>", "is an HTML page; download it again"),
    "mark": (b"\xef\xbb\xbf<HTML lang=en>", "is an HTML page"),
    "xml": (b'<?xml version="1.0"?>\n<Error><Code>NoSuchKey', "is an error message in XML"),
    "json": (b'{"error": "Repository not found"}', "error message in JSON (Repository not found)"),
    "text": (b"Entry not found", "is a server's error message"),
    "code": (b"404: Not Found", "is a server's error message"),
    "empty": (b"", "is empty; download it again"),
    "zeros": (bytes(4096), "begins with 512 zeros, so it is incomplete"),
    "packed": (b"\x1f\x8b\x08\x00", "is compressed with gzip; unpack it"),
}
ENDS = (
    *(".onnx", ".mlir", ".mlirbc", ".pt2", ".tflite", ".jax_export", ".keras", ".h5", ".pt"),
    *(".pth", ".bin", ".ckpt", ".torchscript", ".gguf", ".safetensors", ".npz", ".msgpack", ".pb"),
)
NET = """class Net(Module):
  __parameters__ = ["weight", ]
  weight : Tensor
  def forward(self: __torch__.Net,
    x: Tensor,
    mask: Optional[Tensor]=None,
    scale: float=1.) -> Tensor:
    _0 = torch.matmul(x, self.weight)
    return {body}
"""


def refusal(path, find=find_cases, **wanted):
    with pytest.raises(UserModelError) as raised:
        find(path.name, ModelOptions(folder=path.parent, **wanted))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def torchscript(
    path, *, body="torch.mul(_0, scale)", source=None, network="__torch__\nNet", **more
):
    """Writes an archive as `torch.jit.save` does, without weights."""
    entries = {
        "data.pkl": b"\x80\x02c" + network.encode() + b"\n)\x81.",
        "constants.pkl": b"\x80\x02).",
        "code/__torch__.py": (source or NET.format(body=body)).encode(),
        "version": b"3",
        **more,
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(f"net/{name}", content)
    return path


def layer(kind, name, module="keras.layers", **more):
    config = {"name": name, "dtype": {"class_name": "DTypePolicy", "config": {"name": "float32"}}}
    return {"module": module, "class_name": kind, "config": {**config, **more}}


def keras_archive(path, *layers, **entries):
    config = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "net", "layers": list(layers)},
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", entries.pop("config", json.dumps(config)))
        archive.writestr("model.weights.h5", b"\x89HDF\r\n\x1a\n")
    return path


@pytest.mark.parametrize("kind", SUBSTITUTES)
def test_what_stands_in_the_place_of_a_file_is_named_for_every_kind(tmp_path, kind):
    content, words = SUBSTITUTES[kind]
    for end in ENDS:
        path = tmp_path / f"net{end}"
        path.write_bytes(content)
        assert words in refusal(path), end
    if content:
        (tmp_path / "net.py").write_bytes(content)
        assert words in refusal(tmp_path / "net.py")


@pytest.mark.parametrize(
    "content",
    [
        onnx_bytes(inputs=[declared("x", 1, 4)]),
        b"module @jit_f {}",
        b'{"model_type": "bert", "error": "none"}',
        b'<?xml version="1.0"?><net name="x" version="11">',
        b"\x80\x02}q\x00.",
        b"import torch\n",
    ],
)
def test_content_is_no_substitute(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert substitute_of(tmp_path / "file") is None


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors.index.json", "model-1.safetensors"]
)
def test_pointers_in_a_directory_are_named(tmp_path, name):
    index = {"weight_map": {"w": "model-1.safetensors"}}
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").write_bytes(b"\x08" + bytes(7) + b"{}      ")
    (tmp_path / name).write_bytes(LFS)
    assert f"{tmp_path / name} is a Git LFS pointer" in refusal(tmp_path)


def test_a_pointer_in_the_place_of_onnx_weights_or_of_inputs_is_named(tmp_path):
    external = field(13, field(1, "location") + field(2, "w.data"))
    weight = field(1, 4) + field(2, 1) + field(8, "w") + external + field(14, 1)
    net = tmp_path / "net.onnx"
    net.write_bytes(onnx_bytes(inputs=[declared("x", 1, 4)], weights=[weight]))
    (tmp_path / "w.data").write_bytes(LFS)
    assert "weight 'w' is in 'w.data', which is a Git LFS pointer" in refusal(net)
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "input_0.npy").write_bytes(LFS)
    assert "input_0.npy is not an array: it is a Git LFS pointer" in refusal(
        net, inputs_dir=tmp_path / "given"
    )


def test_formats_are_known_by_content_under_another_name(tmp_path):
    contents = {
        "GGUF": (b"GGUF\x03\0\0\0", "is GGUF and contains quantised weights"),
        "tflite": (b"\x1c\0\0\0TFL3", "is a TFLite file; rename it"),
        "hdf5": (b"\x89HDF\r\n\x1a\n", "is HDF5; rename it to end in .h5"),
        "zip": (b"PK\x03\x04", "is a zip archive; unpack it"),
    }
    for content, words in contents.values():
        path = tmp_path / "net.onnx"
        path.write_bytes(content)
        assert words in refusal(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("net.gguf", "llama-bench, or convert it with transformers"),
        ("net.pb", "tf.saved_model.save, and pass the directory"),
        ("saved_model.pb", "part of a SavedModel; pass its directory"),
        ("net.hlo", "export StableHLO instead"),
        ("net.vmfb", "pass the .mlir or .onnx file that it was compiled from"),
        ("net.xml", "an OpenVINO model, which has no float64 run; pass the .onnx"),
        ("net.engine", "a TensorRT engine, which runs on one kind of GPU"),
        ("net.mlmodel", "a Core ML model"),
        ("net.mlpackage", "a Core ML model"),
        ("net.npz", "contains only arrays; pass the file that creates the model"),
        ("net.msgpack", "contains only Flax weights"),
        ("net.ort", "ONNX Runtime's own format"),
        ("net.ckpt", "TensorFlow checkpoint, which contains only weights"),
        ("NET.VMFB", "compiled by IREE"),
    ],
)
def test_what_cannot_be_run_names_the_way_out(tmp_path, name, words):
    if name.endswith(".mlpackage"):
        (tmp_path / name).mkdir()
    else:
        is_archive = name.endswith(".npz")
        (tmp_path / name).write_bytes(b"PK\x03\x04" if is_archive else b"\x01\x02\x03\x04")
    if name == "net.ckpt":
        (tmp_path / "net.ckpt.index").write_bytes(b"\x01")
    assert is_model(name, tmp_path)
    assert words in refusal(tmp_path / name)


class Net:
    """Represents a module that was pickled as a whole."""


def test_pickles_are_told_apart_without_being_read(tmp_path):
    path = tmp_path / "net.pt"
    for content, words in (
        (pickle.dumps(Net(), 2), "is a pickle of test_file_contents.Net, which runs code"),
        (pickle.dumps(Net(), 4), "is a pickle of test_file_contents.Net, which runs code"),
        (pickle.dumps(collections.OrderedDict(w=1), 2), "is a pickle that contains only weights"),
        (b"cos\nsystem\n(S'exit 1'\ntR.", "was not written by torch.save"),
        (b"\x80\x02cos\nsystem\n(X\x01\0\0\0xtR.", "is a pickle of os.system, which runs code"),
        (b"\x80\x02X", "was not written by torch.save"),
    ):
        path.write_bytes(content)
        message = refusal(path)
        assert words in message
        assert "pass the file that creates the module, PATH.py:CALLABLE" in message
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("net/data.pkl", content)
        if content.startswith(b"\x80") and len(content) > 3:
            assert words in refusal(path)
    path.write_bytes(b"\x80\x02csklearn.svm\nSVC\n)\x81.")
    assert "a pickle of sklearn.svm.SVC, which runs code when loaded; convert it" in refusal(path)
    path.with_suffix(".bin").write_bytes(b"\0\1")
    path.with_suffix(".xml").write_text("<net>")
    assert "contains the weights of an OpenVINO model" in refusal(path.with_suffix(".bin"))


def test_torchscript_is_a_program_by_its_content(tmp_path):
    for name in ("net.pt", "net.pth", "net.torchscript"):
        path = torchscript(tmp_path / name)
        (case,) = find_cases_bounded(
            name, ModelOptions(folder=tmp_path, inputs=("f32[batch,4]",), batch_sizes=(2,))
        ).cases
        assert case.model.model_parameters["program"] == "TorchScript"
        assert case.model.model_parameters["inputs"] == "f32[2,4]"
        assert case.model.name == "NET_FP32_PT_BATCH2"
    assert (
        "net.pt takes x, [mask] (types and sizes unknown); pass --input once for each"
        in refusal(tmp_path / "net.pt")
    )
    (named,) = find_cases(
        path.name, ModelOptions(folder=tmp_path, inputs=("mask=f32[4]", "x=f32[1,4]"))
    ).cases
    assert named.model.model_parameters["inputs"] == "f32[1,4]; f32[4]"
    assert "--input: x is missing: " in refusal(path, inputs=("mask=f32[4]",))
    assert "--input y=...: no such input: " in refusal(path, inputs=("y=f32[4]",))
    assert "got 3" in refusal(path, inputs=("f32[1]", "f32[1]", "f32[1]"))
    assert "--batch: no --input has a size 'batch'" in refusal(
        path, inputs=("f32[1]",), batch_sizes=(2,)
    )
    recorded = Recorded(
        model=case.model.name,
        parameters=case.model.model_parameters,
        framework="pytorch",
        input_data=case.input_data.name,
    )
    assert command_words(recorded) == f"{path} --input 'f32[batch,4]' --batch 2"


def test_torchscript_of_a_module_whose_name_is_not_pythons(tmp_path):
    source = NET.format(body="_0").replace("__torch__.Net", "__torch__.<string>.Net").encode()
    path = torchscript(
        tmp_path / "net.pt",
        network="__torch__.<string>\nNet",
        **{"code/__torch__/<string>.py": source},
    )
    assert "net.pt takes x, [mask]" in refusal(path)


def test_torchscript_may_say_its_inputs(tmp_path):
    path = torchscript(tmp_path / "net.pt", **{"extra/config.txt": b'{"shape": [1, 3, 8, 8]}'})
    (case,) = find_cases(path.name, ModelOptions(folder=tmp_path)).cases
    assert case.model.model_parameters["inputs"] == "f32[1,3,8,8]"
    source = NET.format(body="_0") + (
        "  def get_all_bundled_inputs(self: __torch__.Net) -> List[Tuple[Tensor]]:\n    return []\n"
    )
    torchscript(path, source=source)
    (case,) = find_cases(path.name, ModelOptions(folder=tmp_path)).cases
    assert "inputs" not in case.model.model_parameters
    torchscript(path, source=source.replace("x: Tensor,", "x: List[Tensor],"))
    assert "input 'x' of `forward` is a List[Tensor], but only tensors" in refusal(path)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('torch.save(_0, "f")', "a call to torch.save"),
        ('torch.add(_0, torch.from_file("f", False, 4))', "a call to torch.from_file"),
        ('(_0).save("f")', "a call to _0.save"),
        ('getattr(_0, "save")("f")', "the call getattr(_0, 'save')"),
        ("ops.c10d.barrier(_0)", "an operator from another library, ops.c10d"),
        ("torch.ops.mine.op(_0)", "an operator from another library, mine"),
        ("__torch__.torch.classes.mine.Runner(_0)", "an object of the C++ class"),
        ("torch.classes.mine.Runner(_0)", "an object of a C++ class"),
        ("(torch, _0)", "another name of `torch`"),
    ],
)
def test_torchscript_that_does_more_than_compute_needs_allow_code(tmp_path, body, words):
    path = torchscript(tmp_path / "net.pt", body=body)
    message = refusal(path, inputs=("f32[1,4]",))
    assert f"net.pt contains {words}" in message
    assert "which can read or write files; pass --allow-code" in message
    (case,) = find_cases(
        path.name, ModelOptions(folder=tmp_path, inputs=("f32[1,4]",), allow_code=True)
    ).cases
    assert case.model.model_parameters["pickled"] is True


def test_torchscript_with_objects_of_cpp_classes_or_that_is_broken_is_refused(tmp_path):
    path = tmp_path / "net.pt"
    pickled = b"\x80\x02c__torch__\nNet\nc__torch__.torch.classes.mine\nRunner\n."
    torchscript(path, **{"data.pkl": pickled})
    assert "the C++ class __torch__.torch.classes.mine.Runner" in refusal(path)
    torchscript(path, source="class Net(:")
    assert "has source that is not TorchScript" in refusal(path)
    torchscript(path, source="x = 1")
    assert "__torch__.Net has no method `forward`" in refusal(path)
    whole = torchscript(path).read_bytes()
    for size in range(4, len(whole) - 1, 50):
        path.write_bytes(whole[:size])
        assert "net.pt" in refusal(path)


def test_keras_files_are_programs_unless_they_hold_code(tmp_path):
    path = keras_archive(tmp_path / "net.keras", layer("Dense", "d", activation="relu"))
    (case,) = find_cases_bounded(path.name, ModelOptions(folder=tmp_path)).cases
    assert case.model.name == "NET_FP32_TF"
    assert case.model.model_parameters["program"] == "Keras"
    code = {"class_name": "__lambda__", "config": {"code": "4wEA"}}
    keras_archive(path, layer("Dense", "d"), layer("Lambda", "doubles", function=code))
    words = "net.keras: the layer 'doubles' is a Lambda, which is code; pass --allow-code"
    assert words in refusal(path)
    (case,) = find_cases(path.name, ModelOptions(folder=tmp_path, allow_code=True)).cases
    assert case.model.model_parameters["pickled"] is True


@pytest.mark.parametrize("allow_code", [False, True])
def test_a_class_that_is_not_in_the_keras_file_is_named(tmp_path, allow_code):
    wrapped = layer("TimeDistributed", "around", layer=layer("Own", "inside", module=None))
    path = keras_archive(tmp_path / "net.keras", wrapped)
    message = refusal(path, allow_code=allow_code)
    assert "the layer 'inside' has the class Own, which is not in the file" in message
    assert f"returns keras.saving.load_model('{path}')" in message


def test_keras_files_that_are_not_whole_are_reported(tmp_path):
    path = keras_archive(tmp_path / "net.keras", layer("Dense", "d"))
    whole = path.read_bytes()
    for size in range(4, len(whole), 40):
        path.write_bytes(whole[:size])
        assert "is not a complete Keras file" in refusal(path)
    path.write_bytes(whole.replace(b'"Dense"', b'"Dunse"'))
    assert "is damaged: config.json" in refusal(path)
    keras_archive(path, config="[]")
    assert "is not a Keras model: its configuration names no class" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", b"")
    assert "a zip archive without config.json" in refusal(path)
    path.with_suffix(".h5").write_bytes(b"\1\2\3\4")
    assert "ends in .h5, but is not an HDF5 file" in refusal(path.with_suffix(".h5"))


def test_hdf5_files_hold_a_model_or_weights(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py comes with TensorFlow")
    path = tmp_path / "net.h5"
    config = {"class_name": "Sequential", "config": {"name": "net", "layers": []}}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
    (case,) = find_cases_bounded(path.name, ModelOptions(folder=tmp_path)).cases
    assert case.model.model_parameters["program"] == "Keras"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "is not a complete HDF5 file" in refusal(path)
    config["config"]["layers"] = [{"class_name": "Lambda", "config": {"name": "twice"}}]
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
    assert "the layer 'twice' is a Lambda, which is code" in refusal(path)
    with h5py.File(path, "w") as file:
        file.create_group("layers")
        file.create_group("vars")
    assert "contains only weights: it has no model_config" in refusal(path)


def test_a_folder_of_onnx_files_is_a_case_for_each(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    whole = onnx_bytes(inputs=[declared("x", 1, "batch", 4)])
    for name in ("a.onnx", "b-1.onnx", "b_1.onnx"):
        (folder / name).write_bytes(whole)
    (folder / "cut.onnx").write_bytes(whole[:-3])
    (folder / "pointer.onnx").write_bytes(LFS)
    (folder / "README.md").write_text("not a model")
    for find in (find_cases, find_cases_bounded):
        result = find("models", ModelOptions(folder=tmp_path, batch_sizes=(1, 2)))
        names = [case.model.name for case in result.cases]
        assert names == [f"{n}_FP32_ONNX_BATCH{b}" for n in ("A", "B_1") for b in (1, 2)]
        remarks = " ".join(result.remarks)
        assert "b_1.onnx is left out: the case models/B_1_FP32_ONNX_BATCH1/" in remarks
        assert "cut.onnx is left out: " in remarks
        assert "pointer.onnx is left out: " in remarks
        assert "is a Git LFS pointer" in remarks
    message = refusal(folder, seq_lens=(3,))
    assert "none of its programs can be run: a.onnx is left out: --seq-len" in message


def test_a_directory_with_a_configuration_and_onnx_alone_is_a_folder(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.onnx").write_bytes(onnx_bytes(inputs=[declared("x", 1, 4)]))
    (case,) = find_cases(str(tmp_path), ModelOptions()).cases
    assert case.model.name == "MODEL_FP32_ONNX"


def test_outputs_that_are_no_arrays_are_refused_before_planning(tmp_path):
    net = tmp_path / "net.onnx"
    graph = field(11, declared("x", 1, 4))
    zipmap = field(1, field(2, "prob") + field(4, "ZipMap"))
    output = field(12, field(1, "prob") + field(2, field(4, b"")))
    net.write_bytes(field(1, 10) + field(8, field(2, 20)) + field(7, graph + zipmap + output))
    assert "'prob' comes from ZipMap: it is a list of dictionaries" in refusal(net)
    case = Path(__file__).parents[2] / "data" / "cases" / "g1_zipmap.onnx"
    assert "output 'prob' comes from ZipMap" in refusal(case)
    net.write_bytes(field(1, 10) + field(8, field(2, 20)) + field(7, graph + output))
    assert "output 'prob' has the type sequence, expected an array" in refusal(net)


def test_variables_of_a_saved_model_may_begin_with_zeros(tmp_path):
    (tmp_path / "variables").mkdir()
    (tmp_path / "variables" / "variables.data-00000-of-00001").write_bytes(bytes(4096))
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    (case,) = find_cases(str(tmp_path), ModelOptions()).cases
    assert case.model.model_parameters["program"] == "SavedModel"


def test_files_are_read_although_the_search_path_has_other_entries_than_strings(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nowhere")])
    assert bounded.call(abs, -1) == 1


@pytest.mark.parametrize(
    ("code", "words"), [(7, "exit code 7"), (-9, "killed by SIGKILL"), (-40, "killed by signal 40")]
)
def test_every_signal_is_reported(code, words):
    assert bounded.exit_description(code) == words


def test_a_reader_killed_by_a_signal_without_a_name_is_reported():
    with pytest.raises(bounded.TooCostlyError, match="killed by signal 40"):
        bounded.call(signal.raise_signal, 40)


def test_files_are_read_under_lower_limits_of_the_system(run_python):
    done = run_python(
        "import resource\n"
        "for kind, limit in ((resource.RLIMIT_CPU, 20), (resource.RLIMIT_DATA, 2**30)):\n"
        "    resource.setrlimit(kind, (limit, limit))\n"
        "from openxla.benchmark import bounded\n"
        "print(bounded.call(abs, -1))\n"
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("end", [".onnx", ".pt", ".keras", ".py"])
def test_names_that_cannot_be_are_one_line(tmp_path, end):
    for name in ("a" * 5000 + end, f"~nobody/x{end}"):
        with pytest.raises(UserModelError):
            find_cases_bounded(name, ModelOptions(folder=tmp_path))
