"""Directories as `save_pretrained` leaves them, of sizes not ours: the same in three frameworks."""

import json
from pathlib import Path

import numpy as np
import pytest
from agreement_support import need, relative
from framework_process import run_script

from openxla.benchmark.artifacts import arrays
from openxla.benchmark.brought import Wanted, found

pytestmark = pytest.mark.frameworks

MAKE = """
import sys, transformers as t
configs = {
    "bert": (t.BertModel, t.BertConfig(
        vocab_size=300, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=80, max_position_embeddings=64)),
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(
        vocab_size=310, n_embd=40, n_layer=3, n_head=5, n_positions=48)),
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(
        vocab_size=320, hidden_size=48, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, intermediate_size=72, max_position_embeddings=64)),
    "vit": (t.ViTForImageClassification, t.ViTConfig(
        image_size=48, patch_size=12, hidden_size=40, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=56, num_labels=7)),
    "t5": (t.T5Model, t.T5Config(
        vocab_size=330, d_model=40, d_kv=12, d_ff=72, num_layers=3, num_heads=3,
        decoder_start_token_id=0)),
}
for name, (kind, config) in configs.items():
    t.set_seed(0)
    kind(config).save_pretrained(f"{sys.argv[1]}/{name}")
"""
NAMES = ("bert", "gpt2", "llama", "vit", "t5")
TRUTHS = """
import importlib, json, sys
from pathlib import Path
from comparative_benchmark.backends.api import load_object
from openxla.benchmark.artifacts import arrays
reference, target, models = sys.argv[1:]
compute = load_object(reference)
for name, (module, parameters) in json.loads(models).items():
    model = importlib.import_module(module).create_model(**parameters)
    inputs = model.preprocess(model.generate_default_inputs())
    truth, _ = compute(model, inputs)
    for stem, values in (("input", inputs), ("truth", truth)):
        arrays.save_all(Path(target, name), stem, values)
"""
FRAMEWORKS = {
    "pt": ("torch", "comparative_benchmark.pt_inductor.reference:compute"),
    "jax": ("jax", "comparative_benchmark.jax_xla.reference:compute"),
    "tf": ("tensorflow", "comparative_benchmark.tf_xla.reference:compute"),
}


@pytest.fixture(scope="module")
def truths(tmp_path_factory, environment):
    """By framework, a folder with inputs and float64 outputs of each directory."""
    need("jax")
    need("tensorflow")
    models = tmp_path_factory.mktemp("directories")
    run_script(MAKE, [str(models)], environment, framework="torch")
    folders = {}
    for framework, (package, reference) in FRAMEWORKS.items():
        folders[framework] = tmp_path_factory.mktemp(framework)
        wanted = {}
        for name in NAMES:
            seq = () if name == "vit" else (16,)
            chosen = Wanted(framework=framework, batch_sizes=(2,), seq_lens=seq)
            (case,) = found(str(models / name), chosen).cases
            (folders[framework] / name).mkdir()
            model = case.model
            wanted[name] = model.model_impl.module_path, dict(model.model_parameters)
        arguments = [reference, str(folders[framework]), json.dumps(wanted)]
        run_script(TRUTHS, arguments, environment, framework=package)
    return folders


@pytest.mark.parametrize("name", NAMES)
def test_float64_runs_agree_to_1e_9_of_the_scale(truths, name):
    def load(framework: str, stem: str) -> list[np.ndarray]:
        return arrays.load_all(Path(truths[framework], name), stem)

    for other in ("jax", "tf"):
        for mine, theirs in zip(load("pt", "input"), load(other, "input"), strict=True):
            assert (mine.dtype, mine.tobytes()) == (theirs.dtype, theirs.tobytes())
        for mine, theirs in zip(load("pt", "truth"), load(other, "truth"), strict=True):
            assert mine.dtype == theirs.dtype == np.float64
            assert mine.std() > 0
            assert relative(mine, theirs) < 1e-9
