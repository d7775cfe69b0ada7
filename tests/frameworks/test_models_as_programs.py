"""Each model runs as a program from any directory, and reports what its checkpoint lacks."""

import json
import subprocess
import sys

import pytest
from agreement_support import need
from framework_process import run_script

pytestmark = pytest.mark.frameworks

PACKAGES = {"pt": "torch", "jax": "jax", "tf": "tensorflow"}
SCORING = ("bert", "resnet", "vit", "efficientnet", "gpt2", "llama", "gemma", "t5")
OTHERS = ("gpt2_pipeline", "whisper", "sd_clip", "sd_unet", "sd_vae", "sd_pipeline")
# The others take JAX half a minute to compile, and run on it in `test_agreement_*`.
MODELS = {
    "pt": ("example", *SCORING, "t5_for_cond_gen", *OTHERS),
    "jax": (*SCORING, "t5_for_cond_gen"),
    "tf": (*SCORING, "t5_for_cond_gen", *OTHERS),
}
PRINTED = {
    "bert": "output_0: (1, 32, 128)",
    "resnet": "output_0: (1, 1000)",
    "vit": "output_0: (1, 1000)",
    "efficientnet": "output_0: (1, 1000)",
    "t5": "output_0: (1, 32, 128)",
    "t5_for_cond_gen": "output_0: (1, 8)",
}
# All models of a framework in one process, as users' own programs would import them.
AS_PROGRAMS = """
import contextlib, io, json, os, runpy, sys
from pathlib import Path
folder, target, *modules = sys.argv[1:]
sys.argv = sys.argv[:1]
before = os.getcwd()
os.chdir(folder)
printed = {}
try:
    for module in modules:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            runpy.run_module(module, run_name="__main__")
        lines = output.getvalue().splitlines()
        printed[module] = [line for line in lines if line.startswith("output_")]
finally:
    os.chdir(before)
Path(target).write_text(json.dumps(printed))
"""

# A checkpoint whose file lacks a tensor, in a separate root.
INCOMPLETE = """
import importlib, os, sys, tempfile
from openxla.benchmark.models import checkpoints
module, model_name, removed = sys.argv[1:]
write, root = checkpoints.write_weights, os.environ["CBS_ROOT_DIR"]
def incomplete(path, inits, *, seed):
    write(path, [init for init in inits if init.name != removed], seed=seed)
create_model = importlib.import_module(module).create_model
with tempfile.TemporaryDirectory() as folder:
    checkpoints.write_weights, os.environ["CBS_ROOT_DIR"] = incomplete, folder
    try:
        create_model(model_name=model_name)
    finally:
        # Other scripts of this process load the same checkpoint.
        checkpoints.write_weights, os.environ["CBS_ROOT_DIR"] = write, root
"""
REMOVED = {
    "vit": ("vit-tiny", "vit.embeddings.cls_token"),
    "efficientnet": (
        "efficientnet-tiny",
        "efficientnet.encoder.blocks.1.depthwise_conv.depthwise_norm.running_var",
    ),
    "gpt2": ("gpt2-tiny", "transformer.h.1.mlp.c_fc.weight"),
    "t5": ("t5-tiny", "decoder.block.1.layer.1.EncDecAttention.k.weight"),
    "t5_for_cond_gen": ("t5-tiny", "shared.weight"),
    "sd_pipeline": ("sd-pipeline-tiny", "unet.time_embedding.linear_1.bias"),
}


def module_of(framework, name):
    return f"openxla.benchmark.models.{framework}.{name}"


# The default tier runs some; the agreement tests run the others in another way.
SOME = ("bert", "resnet", "gpt2")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((framework, names), id=f"{framework}-{kind}", marks=marks)
        for framework in PACKAGES
        for kind, names, marks in (
            ("some", SOME, ()),
            ("all", MODELS[framework], pytest.mark.nightly),
        )
    ],
)
def printed(request, tmp_path_factory, environment):
    """The framework, and the lines of outputs that its models printed, by model."""
    framework, names = request.param
    need(PACKAGES[framework])
    folder = tmp_path_factory.mktemp(framework)
    arguments = [str(folder), str(folder / "printed.json")]
    modules = [module_of(framework, name) for name in names]
    run_script(AS_PROGRAMS, [*arguments, *modules], environment, framework=framework)
    found = json.loads((folder / "printed.json").read_text())
    return framework, dict(zip(names, found.values(), strict=True))


def test_models_run_from_any_directory(printed):
    _, lines = printed
    assert all(lines.values()), lines
    for name in PRINTED.keys() & lines.keys():
        assert any(PRINTED[name] in item for item in lines[name]), lines[name]


def test_another_process_prints_the_same(printed, tmp_path, environment):
    framework, lines = printed
    done = subprocess.run(
        [sys.executable, "-m", module_of(framework, "gpt2")],
        env=environment,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert [x for x in done.stdout.splitlines() if x.startswith("output_")] == lines["gpt2"]


@pytest.mark.parametrize("framework", PACKAGES)
@pytest.mark.parametrize("name", REMOVED)
def test_a_missing_tensor_is_an_error(framework, name, environment):
    need(PACKAGES[framework])
    if name.startswith("sd_"):
        need("diffusers")
    model_name, removed = REMOVED[name]
    arguments = [module_of(framework, name), model_name, removed]
    with pytest.raises(RuntimeError) as caught:
        run_script(INCOMPLETE, arguments, environment, framework=framework)
    assert removed in str(caught.value).strip().splitlines()[-1]
