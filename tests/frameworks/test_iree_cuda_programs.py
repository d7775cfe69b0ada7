"""Programs that IREE compiles for GPUs: made, published, and run without a compiler."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
from agreement_support import need
from exporters_support import generate

from comparative_benchmark.iree import conventions
from openxla.benchmark.installation import LOCKS_DIR_VARIABLE, ROOT_DIR_VARIABLE

pytestmark = pytest.mark.frameworks

MODEL = "BERT_TINY_FP32_JAX_32XI32_BATCH1"
WORKLOAD = "inputs,outputs,truth,workload"
# Packages missing on a machine for compiled programs: `is_installed` and `import` fail.
HIDING = """
import sys
hidden = {hidden!r}
class Hiding:
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in hidden):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hiding())
"""
FRAMEWORKS = ("jax", "jaxlib", "flax", "torch", "tensorflow", "keras")


@pytest.fixture(scope="module", autouse=True)
def _stack():
    for package in ("jax", "flax", "iree.compiler", "iree.runtime"):
        need(package)


@attrs.frozen
class Machine:
    """Where published artifacts are locked, and some modules are not installed."""

    directory: Path
    environment: dict[str, str]

    def run(self, *arguments: str, hidden: tuple[str, ...] = ()) -> SimpleNamespace:
        site = self.directory / f"site-{len(hidden)}"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(HIDING.format(hidden=hidden))
        output = self.directory / "results.json"
        output.unlink(missing_ok=True)
        done = self.command(
            *("run", *arguments, "-w", "1", "-iter", "3", "-o", str(output)),
            *("-name", f"models/{MODEL}/inputs/INPUT_DATA_MODEL_DEFAULT"),
            PYTHONPATH=str(site),
        )
        (record,) = json.loads(output.read_text())["benchmarks"]
        (metrics,) = record["metrics"].values()
        fields = {**record, "metrics": metrics}
        return SimpleNamespace(code=done.returncode, err=done.stderr, **fields)

    def command(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "comparative_benchmark", *arguments],
            cwd=self.directory,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory, environment):
    """The program for GPUs and the one for CPUs, in a directory of artifacts."""
    types = ("--types", f"{WORKLOAD},vmfb_cuda,stablehlo_mlir")
    return generate(MODEL, tmp_path_factory.mktemp("made") / "out", environment, *types)


@pytest.fixture(scope="module")
def machine(made, tmp_path_factory, environment):
    directory = tmp_path_factory.mktemp("machine")
    found = Machine(
        directory,
        {
            **environment,
            ROOT_DIR_VARIABLE: str(directory / "root"),
            LOCKS_DIR_VARIABLE: str(directory / "locks"),
        },
    )
    store = str(directory / "store")
    for command in (
        ("publish", str(made.directory.parent), store),
        ("lock", f"{store}/{MODEL}", "-o", str(directory / "locks" / "programs.json")),
    ):
        done = found.command("artifacts", *command)
        assert done.returncode == 0, done.stderr
    return found


def has_gpu():
    return conventions.compute_capability() is not None


def test_a_program_that_was_not_run_is_there_and_reports_it(made):
    if has_gpu():
        pytest.skip("there is a GPU here")
    assert made.code == 0, made.err
    assert {"vmfb_cuda", "irpa"} < made.made
    (file,) = (item for item in made.manifest.files if item.artifact_type == "vmfb_cuda")
    assert file.path == "model_cuda.vmfb"
    assert "no CUDA device was found" in file.not_run
    assert "its outputs are not verified" in file.not_run
    assert re.search(r"not_run +BERT\S+  vmfb_cuda", made.err)
    others = [item for item in made.manifest.files if item.artifact_type != "vmfb_cuda"]
    assert {item.not_run for item in others} == {None}


def test_fp32_is_computed_in_fp32(made):
    program = (made.directory / "model_cuda.vmfb").read_bytes()
    ptx = conventions.ptx_of(program)
    assert (ptx.target, ptx.uses_tf32) == ("sm_80", False)
    assert b"fma.rn.f32" in program
    assert b"mma.sync" not in program


@pytest.mark.nightly
def test_bf16_compiles_and_is_summed_in_fp32(tmp_path, environment):
    # IREE ignores a pass pipeline that it cannot parse; this check would detect that.
    model = MODEL.replace("FP32", "BF16")
    made = generate(model, tmp_path / "out", environment, "--types", "vmfb_cuda")
    assert made.failures == {}, made.err
    program = (made.directory / "model_cuda.vmfb").read_bytes()
    products = set(re.findall(rb"mma\.sync[\w.]*", program))
    assert products == {b"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"}


def test_a_program_starts_where_only_the_runtime_is_installed(machine):
    if has_gpu():
        pytest.skip("there is a GPU here")
    found = machine.run(
        *("--backend", "iree:cuda", "--exported-programs", "-device", "host-gpu"),
        hidden=("iree.compiler", *FRAMEWORKS),
    )
    assert found.code == 3, found.err
    assert (found.status, found.phase) == ("unsupported", "load")
    assert "IREE finds no cuda device" in found.reason
    assert "compiler" not in found.reason
    assert found.metrics["program_source"]["types"] == ["irpa", "vmfb_cuda"]


@pytest.mark.nightly
def test_without_programs_the_compiler_is_what_lacks(machine):
    found = machine.run(
        *("--backend", "iree:cuda", "-device", "host-gpu"), hidden=("iree.compiler", *FRAMEWORKS)
    )
    assert (found.code, found.status, found.phase) == (3, "unsupported", "import")
    assert "iree.compiler, jax, flax not installed" in found.reason


def test_on_the_cpu_the_compiler_is_all_that_a_program_needs(machine):
    found = machine.run(
        *("--backend", "iree:llvm-cpu", "--exported-programs", "-device", "host-cpu"),
        hidden=FRAMEWORKS,
    )
    assert found.status == "ok", found.err
    assert found.metrics["final_verification"]["passed"]
    assert found.metrics["program_source"]["types"] == ["stablehlo_mlir", "xla_weights"]
    assert not {"jax", "jaxlib", "flax"} & set(found.versions)


ADDITION = b"""
func.func @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = stablehlo.add %x, %x : tensor<4096xf32>
  return %0 : tensor<4096xf32>
}
"""


def compiled(output, device, *flags):
    from comparative_benchmark.iree import program

    imported = program.ImportedProgram(mlir=ADDITION, input_type="stablehlo", parameters={})
    program.compile_program(imported, output, device=device, data_tiling=False, extra_flags=flags)
    return output


@pytest.mark.parametrize("capability", conventions.CUDA_TARGETS)
def test_the_compiler_takes_each_target(tmp_path, capability):
    flags = conventions.cuda_flags(conventions.cuda_target_for(capability))
    program = compiled(tmp_path / "program.vmfb", "cuda", *flags).read_bytes()
    assert conventions.ptx_of(program).capability == capability


def test_a_target_that_the_compiler_refuses_fails_in_one_line(tmp_path):
    with pytest.raises(RuntimeError, match="iree-compile failed: missing GPU target") as refused:
        compiled(tmp_path / "program.vmfb", "cuda", "--iree-cuda-target=sm_90")
    assert "\n" not in str(refused.value)


def test_what_is_no_program_for_gpus_is_refused_where_it_is_read_back(tmp_path):
    from comparative_benchmark.maintenance.artifacts import from_iree

    job = SimpleNamespace(options={"file": "model_cuda.vmfb"}, find=tmp_path.joinpath)
    vmfb = tmp_path / "model_cuda.vmfb"
    compiled(vmfb, "local")
    with pytest.raises(ValueError, match="expected PTX for sm_80"):
        from_iree.run_vmfb_cuda(job)
    compiled(vmfb, "cuda", *conventions.cuda_flags("sm_89"))
    with pytest.raises(ValueError, match="expected PTX for sm_80"):
        from_iree.run_vmfb_cuda(job)
    compiled(vmfb, "cuda", *conventions.cuda_flags("sm_80"))
    vmfb.write_bytes(vmfb.read_bytes()[:-500])
    with pytest.raises(ValueError, match="INVALID_ARGUMENT"):
        from_iree.run_vmfb_cuda(job)


def test_memory_is_counted_by_the_device(tmp_path):
    import numpy as np

    from comparative_benchmark.iree import runtime

    vmfb = compiled(tmp_path / "program.vmfb", "local")
    loaded = runtime.LoadedProgram(vmfb, None)
    value = loaded.put(np.ones(4096, np.float32))
    before = loaded.memory_peak_bytes()
    (output,) = loaded.invoke(value)
    assert loaded.fetch(output)[0] == 2
    assert before >= 4 * 4096
    assert loaded.memory_peak_bytes() >= 2 * 4 * 4096
