"""The tables in `benchmarks/` compare our networks with equal ones."""

import json
from pathlib import Path

import pytest
from agreement_support import need
from framework_process import run_script

pytestmark = pytest.mark.frameworks

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# One script for all, since the imports take most of the time.
SCRIPT = """
import json, sys
from pathlib import Path
benchmarks, target, *names = sys.argv[1:]
sys.path.insert(0, benchmarks)
import jax, jax.numpy as jnp, numpy as np
import _zoo, jax_models
from _plain_jax import ATTENTIONS
from _weights import arrays, config_of
_zoo.add_sizes()
def run(function, weights, inputs):
    # Compiled once, run once: optimisation would take longer than it saves.
    lowered = jax.jit(function).lower(weights, *inputs)
    compiled = lowered.compile(compiler_options={"xla_backend_optimization_level": 0})
    return np.asarray(compiled(weights, *inputs))
errors = []
for name in names:
    model = _zoo.ENTRIES[name].model("jax", quick=True)
    inputs = model.preprocess(model.generate_default_inputs())
    ours = run(model.apply, model.params, inputs)
    weights = {key: jnp.asarray(value) for key, value in arrays(model).items()}
    for way, attend in ATTENTIONS.items():
        plain = jax_models.PLAIN[name](config_of(model), attend)
        found = run(plain, weights, inputs)
        assert found.shape == ours.shape, f"{name}: {found.shape}, ours {ours.shape}"
        scale = np.sqrt(np.mean(np.square(ours)))
        errors.append([name, way, float(np.abs(found - ours).max() / scale)])
Path(target).write_text(json.dumps(errors))
sys.path.remove(benchmarks)
"""
# EfficientNet's blocks take too long to compile for a test; the table itself compares its outputs.
NAMES = (
    *("bert", "t5", "gpt2", "vit", "gemma", "llama"),
    *("resnet", "sd_clip", "sd_unet", "sd_vae", "whisper"),
)


@pytest.mark.parametrize(
    "names",
    [("bert", "gpt2", "resnet"), pytest.param(NAMES, marks=pytest.mark.nightly)],
    ids=("some", "all"),
)
def test_networks_without_a_library_give_what_ours_give(environment, tmp_path, names):
    need("jax")
    target = tmp_path / "errors.json"
    run_script(SCRIPT, [str(BENCHMARKS), str(target), *names], environment, framework="jax")
    errors = json.loads(target.read_text(encoding="utf-8"))
    assert [name for name, *_ in errors] == [name for name in names for _ in range(2)]
    assert [error for error in errors if not error[-1] < 2e-5] == []
