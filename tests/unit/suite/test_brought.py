"""Cases of users' models: files are read, never executed, and identified by content."""

import json
import shutil
import textwrap

import numpy as np
import pytest

from comparative_benchmark.errors import UsageError
from comparative_benchmark.studies.micro.config import read
from openxla.benchmark.def_types import DefinitionError, ModelFrameworkType
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures.directories import config_of, why_not_covered
from openxla.benchmark.models.checkpoints import load_tensors, write_weights
from openxla.benchmark.user_models import (
    ModelOptions,
    Recorded,
    UserModelError,
    command_words,
    find_cases,
    is_model,
    recorded_model,
)
from openxla.benchmark.user_models.model_options import parse_spec
from openxla.benchmark.user_models.python_files.outline import source_digest
from openxla.benchmark.workloads import workload_of

NET = """
import torch
import layers

raise SystemExit("this file is never executed by the parent")

class Net(torch.nn.Module):
    pass

def small():
    return Net()

def example_inputs():
    return torch.zeros(1)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "layers.py").write_text("from deeper import LAYERS\n")
    (tmp_path / "deeper.py").write_text("LAYERS = 1\n")
    return tmp_path


@pytest.fixture
def write(tmp_path):
    def write(text, name="own.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return tmp_path / name

    return write


@pytest.fixture
def bert(tmp_path):
    """A directory from `save_pretrained`, of a size that is not in the suite."""
    target = tmp_path / "my-bert"
    shutil.copytree(checkpoints.seeded(architectures.get("bert"), "bert-tiny"), target)
    return target


def only(text, folder=None, **wanted):
    (case,) = find_cases(
        str(text), ModelOptions(**({"folder": folder} if folder else {}), **wanted)
    ).cases
    return case


def test_a_file_is_a_case_without_being_executed(folder):
    case = only("net.py", folder)
    assert case.name == "models/NET_FP32_PT/inputs/INPUT_DATA_MODEL_DEFAULT"
    assert case.model.model_impl.framework_type is ModelFrameworkType.PYTORCH
    assert case.model.model_parameters["callable"] == "Net"
    assert only("net.py:small", folder).model.name == "NET_SMALL_FP32_PT"
    again = only("net:Net", folder)
    assert again.model.model_parameters["module"] == "net"


@pytest.mark.parametrize("text", ["net.py", "net:Net"])
def test_identity_is_the_content_of_the_file_and_of_what_it_imports(folder, tmp_path_factory, text):
    digest = workload_of(only(text, folder)).digest
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for file in folder.glob("*.py"):
        shutil.copy(file, elsewhere)
    assert workload_of(only(text, elsewhere)).digest == digest
    (elsewhere / "deeper.py").write_text("LAYERS = 2\n")
    assert workload_of(only(text, elsewhere)).digest != digest
    (elsewhere / "other.py").write_text("")
    changed = source_digest(elsewhere / "net.py", elsewhere, "")
    (elsewhere / "other.py").write_text("x = 1")
    assert source_digest(elsewhere / "net.py", elsewhere, "") == changed


@pytest.mark.parametrize("name", ["site-packages", "dist-packages"])
def test_other_installed_packages_are_not_part_of_the_identity(folder, name):
    installed = shutil.copytree(folder, folder / name)
    digest = source_digest(installed / "net.py", installed, "net")
    (installed / "layers.py").write_text("LAYERS = 2\n")
    assert source_digest(installed / "net.py", installed, "net") == digest


def test_folders_on_the_way_to_a_module_need_no_init_file(folder):
    (folder / "loose" / "deep").mkdir(parents=True)
    (folder / "loose" / "deep" / "part.py").write_text("import jax\nmodel = 1\n")
    case = only("loose.deep.part:model", folder, inputs=("f32[2]",))
    assert case.model.model_parameters["module"] == "loose.deep.part"


def test_the_home_directory_may_be_written_as_a_tilde(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    (folder / "models").mkdir()
    assert is_model("~/models")
    assert only("~/net.py").model.model_parameters["source"] == str(folder / "net.py")
    with pytest.raises(UserModelError, match=r"no such file: .*~no-such-user/net\.py"):
        only("~no-such-user/net.py", folder)


def test_packages_on_the_way_to_a_module_are_not_imported(folder):
    package = folder / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit")
    (package / "part.py").write_text("import jax\nfrom . import other\nmodel = 1\n")
    (package / "other.py").write_text("")
    case = only("pack.part:model", folder, inputs=("f32[2]",))
    assert case.model.model_impl.framework_type is ModelFrameworkType.JAX
    digest = workload_of(case).digest
    (package / "other.py").write_text("changed = 1")
    assert workload_of(only("pack.part:model", folder, inputs=("f32[2]",))).digest != digest


def test_sizes_by_name_make_a_case_for_each(folder):
    cases = find_cases(
        "net.py",
        ModelOptions(
            folder=folder,
            inputs=("i32[batch,seq]<10", "f32[batch]"),
            batch_sizes=(1, 8),
            seq_lens=(4,),
            data_types=("fp32", "bf16"),
        ),
    ).cases
    assert [case.name for case in cases][:2] == [
        "models/NET_FP32_PT_SEQLEN4_BATCH1/inputs/1X4XI32_1XF32",
        "models/NET_FP32_PT_SEQLEN4_BATCH8/inputs/8X4XI32_8XF32",
    ]
    assert [case.batch_size for case in cases] == [1, 8, 1, 8]
    assert cases[1].model.model_parameters["inputs"] == "i32[8,4]<10; f32[8]"
    assert len({workload_of(case).digest for case in cases}) == 4


def test_inputs_are_the_same_numbers_everywhere():
    ids = parse_spec("i32[2,50]<7@3").array(0)
    assert ids.dtype == np.int32
    assert set(np.unique(ids)) == set(range(7))
    assert np.array_equal(ids, parse_spec("i32[2,50]<7@3").array(0))
    assert not np.array_equal(ids, parse_spec("i32[2,50]<7").array(0))
    assert not np.array_equal(ids, parse_spec("i32[2,50]<7@3").array(1))
    numbers = parse_spec("f32[1000]").array(0)
    assert numbers.std() == pytest.approx(1, abs=0.1)
    assert numbers.sum() == pytest.approx(float(parse_spec("f32[1000]").array(0).sum()))
    assert parse_spec("i32[3]=1").array(0).tolist() == [1, 1, 1]
    assert parse_spec("i64[1]=9007199254740993").array(0).tolist() == [2**53 + 1]
    assert parse_spec("i1[2,2]").array(0).dtype == np.bool_


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f32", "expected TYPE[SIZES], e.g. f32[1,3,224,224]"),
        ("f99[1]", "unknown type 'f99'; choices are f64, f32"),
        ("i32[4]", "needs a range or value, e.g. i32[4]<1000"),
        ("i32[4]<0", "cannot draw i32 numbers from 0 up to 0"),
        ("i8[4]<1000", "cannot draw i8 numbers from 0 up to 1000"),
        ("f32[4]<3", "cannot draw f32 numbers from 0 up to 3"),
        ("u8[4]=256", "expected a whole number from 0 to 255"),
        ("u8[4]=-1", "expected a whole number from 0 to 255"),
        ("i8[4]=-129", "expected a whole number from -128 to 127"),
        ("i32[4]=1.5", "expected a whole number from -2147483648 to 2147483647"),
        ("f32[rows,4]", "invalid size 'rows'"),
        ("f32[0,4]", "has 0 elements"),
    ],
)
def test_inputs_that_cannot_be_are_reported(text, words):
    with pytest.raises(UserModelError) as raised:
        parse_spec(text)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nett.py", "did you mean net.py?"),
        ("net.py:smal", "has no 'smal'; did you mean small?"),
        ("net.py:1x", "'1x' is not the name of a callable"),
        ("broken.py", "broken.py:1: invalid Python"),
        ("many.py", "many.py creates the model; pass one of many.py:A, many.py:B, or rename"),
        ("bare.py:f", 'imports no framework; add FRAMEWORK = "pt"'),
        ("both.py:f", "imports jax and pytorch"),
        ("wrong.py:f", "unknown framework 'mxnet'; choices are pt, jax, tf"),
        ("silent.py:f", "does not define the model's inputs; add a function example_inputs()"),
        ("no.such:f", "no module 'no' on Python's"),
        ("model.onnx", "no such file: "),
        ("weights.safetensors", "contains only weights; pass the directory"),
        ("weights.pt", "is a pickle"),
        ("empty", "has neither config.json"),
        ("nowhere", "no such file or directory: nowhere"),
        ("models/BERT_.+", "select the suite's cases with -name"),
        ("", "no model given"),
    ],
)
def test_what_cannot_be_brought_is_reported_in_a_sentence(folder, write, text, words):
    write("def f(:", "broken.py")
    write("import torch\nclass A(torch.nn.Module): ...\nclass B(torch.nn.Module): ...", "many.py")
    write("def f(): ...", "bare.py")
    write("import torch, jax\ndef f(): ...", "both.py")
    write("FRAMEWORK = 'mxnet'\ndef f(): ...", "wrong.py")
    write("import torch\ndef f(): ...", "silent.py")
    (folder / "empty").mkdir()
    with pytest.raises(UserModelError) as raised:
        find_cases(text, ModelOptions(folder=folder))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"batch_sizes": (2,)}, "--batch: no --input has a size 'batch'"),
        ({"data_types": ("int3",)}, "unknown data type 'int3'; choices are fp32, fp16, bf16"),
        ({"framework": "jax"}, "net.py runs only in pytorch, not in jax"),
        ({"framework": "jax,tf"}, "net.py runs only in pytorch, not in jax,tf"),
        ({"task": "fill-mask"}, "--task requires a Hugging Face directory"),
        ({"inputs": ("f32[seq]",)}, "set 'seq' with --seq-len"),
    ],
)
def test_options_that_do_not_fit_are_reported(folder, wanted, words):
    with pytest.raises(UserModelError) as raised:
        find_cases("net.py", ModelOptions(folder=folder, **wanted))
    assert words in str(raised.value)


def test_a_file_may_say_its_framework_and_type(write):
    path = write(
        """
        FRAMEWORK = "tf"
        DATA_TYPE = "bf16"
        class M:
            def generate_default_inputs(self): ...
        create_model = M
        """
    )
    case = only(path)
    assert case.model.model_impl.framework_type is ModelFrameworkType.TF_V2
    assert case.data_type == "bf16"


def test_what_is_a_model_and_what_a_name_of_cases(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "dir").mkdir()
    assert all(map(is_model, ("x.py", "x.py:f", "pack.part:f", "dir", "x.onnx")))
    assert not any(map(is_model, ("models/BERT_.+", ".*", "nowhere")))


def test_a_directory_of_ours_is_one_workload_in_three_frameworks(bert):
    cases = find_cases(str(bert), ModelOptions(seq_lens=(16,))).cases
    assert [case.model.name for case in cases] == [
        f"MY_BERT_FP32_{framework}_SEQLEN16" for framework in ("PT", "JAX", "TF")
    ]
    (digest,) = {workload_of(case).digest for case in cases}
    assert workload_of(cases[0]).label == "my-bert-fp32-1x16xi32"
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-5}))
    changed = find_cases(str(bert), ModelOptions(seq_lens=(16,))).cases
    assert workload_of(changed[0]).digest != digest


def test_weights_may_lie_in_several_files(bert):
    tensors = {t.name: t for t in architectures.get("bert").tensors(config_of(str(bert), "bert"))}
    whole = dict(load_tensors(architectures.get("bert"), bert))
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in halves.items():
        write_weights(bert / file, [tensors[name] for name in part], seed=0)
    (bert / "model.safetensors").unlink()
    index = {name: file for file, part in halves.items() for name in part}
    (bert / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert len(find_cases(str(bert), ModelOptions()).cases) == 3
    parts = load_tensors(architectures.get("bert"), bert)
    assert all(np.array_equal(parts[name], value) for name, value in whole.items())
    (bert / "b.safetensors").unlink()
    with pytest.raises(UserModelError, match=r"lacks b.safetensors, which model.safetensors.index"):
        find_cases(str(bert), ModelOptions())
    (bert / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict.fromkeys(index, "../b.safetensors")})
    )
    with pytest.raises(UserModelError, match="outside its directory"):
        find_cases(str(bert), ModelOptions())


def test_weights_that_are_cut_or_missing_or_pickled_are_reported(bert):
    weights = bert / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserModelError, match="truncated: expected at least"):
        find_cases(str(bert), ModelOptions())
    weights.unlink()
    with pytest.raises(UserModelError, match=r"has neither model.safetensors"):
        find_cases(str(bert), ModelOptions())
    (bert / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(UserModelError, match=r"is a pickle, which can run code.*--allow-code"):
        find_cases(str(bert), ModelOptions())
    trusted = find_cases(str(bert), ModelOptions(allow_code=True))
    assert [c.model.model_impl.framework_type.value for c in trusted.cases] == ["pytorch"]
    assert "its weights are pickled" in trusted.remarks[0]


def test_a_model_with_a_head_runs_in_pytorch_alone_and_gives_the_reason(bert):
    config = json.loads((bert / "config.json").read_text())
    config["architectures"] = ["BertForMaskedLM"]
    (bert / "config.json").write_text(json.dumps(config))
    whole = find_cases(str(bert), ModelOptions())
    assert len(whole.cases) == 1
    assert "runs only in PyTorch: the suite implements BertModel" in whole.remarks[0]
    assert "--task feature-extraction" in whole.remarks[0]
    assert len(find_cases(str(bert), ModelOptions(task="feature-extraction")).cases) == 3
    with pytest.raises(UserModelError, match="runs only in pytorch, not in jax"):
        find_cases(str(bert), ModelOptions(framework="jax"))
    assert len(find_cases(str(bert), ModelOptions(framework="jax,pytorch")).cases) == 1
    with pytest.raises(UserModelError, match="unknown task 'nonsense'; choices are feature-"):
        find_cases(str(bert), ModelOptions(task="nonsense"))
    with pytest.raises(
        UserModelError, match=r"need the name of the argument, e.g. 'input_ids=f32\[1\]'"
    ):
        find_cases(str(bert), ModelOptions(inputs=("f32[1]",)))
    del config["architectures"]
    (bert / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserModelError, match="lists no class in 'architectures'; pass --task"):
        find_cases(str(bert), ModelOptions())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "relu"}, "hidden_act is 'relu', but the suite supports only 'silu'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "have the unsupported type 'yarn'"),
        ({"rope_scaling": {"type": "linear"}}, "have the unsupported type 'linear'"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"model_type": "mamba"}, "mamba is not an architecture of the suite"),
        ({"num_attention_heads": 0, "head_dim": None}, "its configuration cannot be read"),
        ({"quantization_config": {"quant_method": "fp8"}}, "its weights are quantised"),
    ],
)
def test_a_configuration_that_ours_do_not_compute_is_not_covered(changes, words):
    given = {**architectures.get("llama").configs["llama-tiny"], **changes}
    assert words in str(why_not_covered(given, "LlamaForCausalLM"))


@pytest.mark.parametrize("key", ["image_size", "patch_size"])
def test_pictures_with_a_list_of_sizes_are_not_covered(key):
    given = {**architectures.get("vit").configs["vit-tiny"], key: [32, 32]}
    reason = f"{key} is [32, 32], but the suite supports only a single integer"
    assert why_not_covered(given, "ViTForImageClassification") == reason


@pytest.mark.parametrize(
    ("name", "model", "wanted_class"),
    [
        ("bert", "bert-tiny", "BertModel"),
        ("gpt2", "gpt2-tiny", "GPT2LMHeadModel"),
        ("llama", "llama-tiny", "LlamaForCausalLM"),
        ("gemma", "gemma-tiny", "GemmaForCausalLM"),
        ("t5", "t5-tiny", "T5Model"),
        ("vit", "vit-tiny", "ViTForImageClassification"),
        ("resnet", "resnet-tiny", "ResNetForImageClassification"),
        ("efficientnet", "efficientnet-tiny", "EfficientNetForImageClassification"),
        ("whisper", "whisper-tiny-test", "WhisperForConditionalGeneration"),
        ("sd_clip", "sd-clip-tiny", "CLIPTextModel"),
    ],
)
def test_each_rule_gives_what_its_architecture_needs(tmp_path, name, model, wanted_class):
    architecture = architectures.get(name)
    given = architecture.configs[model]
    assert why_not_covered(given, wanted_class) is None
    (tmp_path / "config.json").write_text(json.dumps(given))
    read = architecture.config(str(tmp_path))
    # Anything that a rule omits would be missing from the weights and the shapes.
    assert list(architecture.tensors(read)) == list(architecture.tensors(given))
    parameters = {**architecture.example, "data_type": "fp32", "batch_size": 2}
    for specs in (architecture.input_specs, architecture.output_specs):
        assert specs({**parameters, "model_name": str(tmp_path)}) == specs(parameters)


def test_a_directory_as_a_checkpoint_needs_its_digest(bert):
    parameters = {"model_name": str(bert), "data_type": "fp32", "batch_size": 1, "seq_len": 8}
    architecture = architectures.get("bert")
    for wrong in ({}, {"checkpoint": "directory"}, {"checkpoint": "seeded"}):
        with pytest.raises(DefinitionError, match="'directory' and source_sha256 are required"):
            checkpoints.identity(architecture, {**parameters, **wrong})
    whole = {**parameters, "checkpoint": "directory", "source_sha256": "0" * 64}
    assert checkpoints.identity(architecture, whole) == f"directory-{'0' * 64}"
    assert checkpoints.resolve(architecture, whole) == bert
    with pytest.raises(DefinitionError, match="model_type bert is not gpt2"):
        architectures.get("gpt2").config(str(bert))


def test_what_was_brought_can_be_named_again(folder, bert):
    case = only("net.py:small", folder, inputs=("f32[batch,2]",), batch_sizes=(4,))
    words = command_words(recorded(case, "pytorch"))
    assert words == (
        f"{folder}/net.py:small --dtype fp32 --framework pytorch --input 'f32[batch,2]' --batch 4"
    )
    assert named_once_more(case, "pytorch") == case
    jax = find_cases(str(bert), ModelOptions(seq_lens=(8,), framework="jax")).cases[0]
    words = command_words(recorded(jax, "jax"))
    assert words == f"{bert} --dtype fp32 --framework jax --seq-len 8"
    assert named_once_more(jax, "jax") == jax
    ours = Recorded(model="X", parameters={"model_name": "a"}, framework="jax", input_data="")
    assert command_words(ours) is None


def named_once_more(case, framework):
    """Returns the case that a recorded definition gives."""
    (found_again,) = find_cases(*recorded_model(recorded(case, framework))).cases
    return found_again


def recorded(case, framework):
    return Recorded(
        model=case.model.name,
        parameters=case.model.model_parameters,
        framework=framework,
        input_data=case.input_data.name,
    )


def onnx_network(path):
    """Writes a network that takes f32[batch, 16]."""
    onnx = pytest.importorskip("onnx")
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Tanh", ["x"], ["y"])],
        "net",
        *([onnx.helper.make_tensor_value_info(name, kind, ["batch", 16])] for name in "xy"),
    )
    onnx.save(onnx.helper.make_model(graph), path)
    return path


@pytest.mark.parametrize(
    ("inputs", "sizes", "words"),
    [
        ((), {"batch_sizes": (8,)}, "--batch 8"),
        ((), {}, ""),
        (("f32[batch,16]",), {"batch_sizes": (8,)}, "--input 'f32[batch,16]' --batch 8"),
        (("f32[8,16]@3",), {}, "--input 'f32[8,16]@3'"),
    ],
)
def test_a_program_can_be_named_again_however_its_inputs_were_given(tmp_path, inputs, sizes, words):
    path = onnx_network(tmp_path / "net.onnx")
    (case,) = find_cases(str(path), ModelOptions(inputs=inputs, **sizes)).cases
    assert named_once_more(case, "onnx") == case
    said = command_words(recorded(case, "onnx"))
    assert said == f"{path} {words}".strip()


def test_the_guides_yaml_names_what_lies_next_to_it(folder, bert):
    head = "model_params: {name: mine, device: cpu, model_type: "
    (folder / "c.yml").write_text(f"{head}'net.py:small', high_precision_dtype: bfloat16}}")
    (model,) = read(folder / "c.yml").models
    assert model.case.model.name == "NET_SMALL_BF16_PT"
    assert model.shapes == (("", None),)
    (folder / "c.yml").write_text(f"{head}my-bert}}")
    (model,) = read(folder / "c.yml").models
    assert (model.case.model.name, model.data_type) == ("MY_BERT_FP32_PT", "fp32")
    for kind, words in (
        ("'net.py:smal'", "c.yml:1:53: .*no 'smal'; did you mean small?"),
        ("my-bert, matrix_shapes: []", "a whole model defines its own shapes"),
        ("nowhere", "unknown model type 'nowhere'"),
    ):
        (folder / "c.yml").write_text(f"{head}{kind}}}")
        with pytest.raises(UsageError, match=words):
            read(folder / "c.yml")


def test_tensors_that_do_not_fit_the_configuration_are_named(bert):
    weights = bert / "model.safetensors"
    tensors = {t.name: t for t in architectures.get("bert").tensors(config_of(str(bert), "bert"))}

    def written(**changes):
        write_weights(weights, [t for t in {**tensors, **changes}.values() if t], seed=0)
        return find_cases(str(bert), ModelOptions())

    # Keys used only by a head, and keys that are not used.
    assert not written(**{"pooler.dense.weight": None, "pooler.dense.bias": None}).remarks
    extra = written(**{"adapter.down": tensors["pooler.dense.bias"]._replace(name="adapter.down")})
    assert extra.remarks == ["my-bert has unused tensors: adapter.down"]
    name = "encoder.layer.1.output.dense.bias"
    with pytest.raises(
        UserModelError, match=rf"lacks 1 of 37 tensors that its .* requires: {name}"
    ):
        written(**{name: None})
    with pytest.raises(UserModelError, match=rf"do not match its .*: {name} is 7, expected 128"):
        written(**{name: tensors[name]._replace(shape=(7,))})


def test_links_stay_in_the_directory_or_in_the_cache_of_the_hub(bert, tmp_path):
    weights = bert / "model.safetensors"
    elsewhere = tmp_path / "private"
    weights.rename(elsewhere)
    weights.symlink_to(elsewhere)
    with pytest.raises(
        UserModelError, match=r"model.safetensors links to .*, outside the directory"
    ):
        find_cases(str(bert), ModelOptions())
    # models--owner--name/{snapshots/COMMIT,blobs}, as huggingface_hub keeps it.
    snapshot = tmp_path / "models--me--bert" / "snapshots" / "0123"
    blobs = tmp_path / "models--me--bert" / "blobs"
    blobs.mkdir(parents=True)
    shutil.copytree(bert, snapshot, symlinks=True)
    elsewhere.rename(blobs / "abcd")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("../../blobs/abcd")
    assert len(find_cases(str(snapshot), ModelOptions()).cases) == 3
