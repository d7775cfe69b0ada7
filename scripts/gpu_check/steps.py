"""The steps of the check in their order, the most informative ones first.

A step is one or more commands of the suite, run in a process group with a time limit. This module
runs nothing.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from gpu_check.bootstrap import CHECKOUT

# Seconds that a step's command has, for commands that can finish early.
LIMIT_VARIABLE = "CBS_GPU_CHECK_LIMIT_S"
MODULES = (
    *("torch", "transformers", "jax", "flax", "iree.compiler", "iree.runtime"),
    *("pytest", "jinja2"),
)
_DATA_TYPES = ("FP32", "BF16", "FP16")
# Large models and batch sizes, in an order that soon covers each model and both sizes.
_LARGE = (
    *(("BERT_BASE", 1), ("RESNET50", 32), ("VIT_BASE", 32)),
    *(("BERT_BASE", 32), ("RESNET50", 1), ("VIT_BASE", 1)),
)
_CLI = ("-m", "comparative_benchmark")


@attrs.frozen(kw_only=True)
class Step:
    """One step of the check.

    Attributes:
      name: short, for `--steps` and file names.
      title: for people.
      commands: run in sequence; arguments of Python if the first one is an option, else a program
        with its arguments.
      limit_s: seconds for all commands.
      writes: files in the scratch folder that go to the output folder.
      needs: modules that must be installed.
      untimed: whether it can run in parallel with other untimed steps.
      must_pass: whether the step fails if a command exits with another code than 0.
      variables: environment variables of its processes.
    """

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    limit_s: float
    writes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    untimed: bool = False
    must_pass: bool = True
    variables: Mapping[str, str] = attrs.field(factory=dict)

    def command_lines(self) -> list[list[str]]:
        """Returns the commands with their interpreter."""
        return [
            [sys.executable, "-P", *command] if command[0].startswith("-") else list(command)
            for command in self.commands
        ]


@attrs.frozen(kw_only=True)
class Machine:
    """The machine and the folders of the check.

    Attributes:
      device: `host-gpu` or `host-cpu`.
      output: folder of the results.
      scratch: folder of all other files, outside the checkout.
      modules: the installed ones of `MODULES`.
      programs: published programs for IREE in the wheel folder, if there are any.
      cpus: number of usable CPUs.
    """

    device: str
    output: Path
    scratch: Path
    modules: frozenset[str]
    programs: Path | None = None
    cpus: int = attrs.field(factory=lambda: len(os.sched_getaffinity(0)))

    @property
    def on_gpu(self) -> bool:
        """Whether this is a check of a GPU, not a rehearsal."""
        return self.device != "host-cpu"

    def has(self, *names: str) -> bool:
        """Returns whether all these modules are installed."""
        return set(names) <= self.modules

    def competitors(self) -> list[str]:
        """Returns the competitors of every race."""
        torch = ["pt_inductor:eager", "pt_inductor:inductor"] if self.has("torch") else []
        return [*torch, *(["jax_xla:xla"] if self.has("jax", "flax") else [])]

    def cuda_graphs(self) -> list[str]:
        """Returns the competitor with CUDA graphs, in a list that is empty without it."""
        has_graphs = self.on_gpu and self.has("torch")
        return ["pt_inductor:inductor+cuda-graphs"] if has_graphs else []


def all_steps(machine: Machine) -> list[Step]:
    """Returns all steps in order, including those whose modules are not installed."""
    first_race, *races = _races(machine)
    return [
        _environment(machine),
        _matrix(machine),
        _tests(machine),
        *_prepare(machine),
        _faults(machine),
        _ceilings(machine),  # without them, a race would measure them
        _measure(machine),
        *_iree_programs(machine),
        first_race,
        _pairs(machine),
        *races,
        *_autotune(machine),
    ]


def _environment(machine: Machine) -> Step:
    smi = (("nvidia-smi",),) if machine.on_gpu else ()
    return Step(
        name="environment",
        title="driver, device, packages and disturbances",
        commands=(*smi, (*_CLI, "backends"), (*_CLI, "doctor")),
        limit_s=40,
        must_pass=False,
    )


def _matrix(machine: Machine) -> Step:
    competitors = [*machine.competitors(), *machine.cuda_graphs()]
    if machine.has("iree.compiler", "iree.runtime"):
        competitors.append("iree:cuda" if machine.on_gpu else "iree:llvm-cpu")
    return _parity(
        machine,
        name="matrix",
        title="correctness of tiny BERT, ResNet and GPT-2 generation in fp32, bf16 and fp16",
        competitors=competitors,
        limit_s=240,
        untimed=True,
    )


def _autotune(machine: Machine) -> list[Step]:
    # Each cell compiles for half a minute on a GPU, and for minutes on a CPU.
    if not (machine.on_gpu and machine.has("torch")):
        return []
    return [
        _parity(
            machine,
            name="autotune",
            title="cells of the matrix with max-autotune",
            competitors=["pt_inductor:inductor+max-autotune"],
            limit_s=300,
        )
    ]


def _parity(
    machine: Machine,
    *,
    name: str,
    title: str,
    competitors: Sequence[str],
    limit_s: float,
    untimed: bool = False,
) -> Step:
    types = "|".join(_DATA_TYPES if machine.on_gpu else _DATA_TYPES[:2])
    names = (
        rf"BERT_TINY_({types})_\w+_32XI32_BATCH1",
        rf"RESNET_TINY_({types})_\w+_BATCH1",
        rf"GPT2_TINY_GREEDY_({types})_\w+_1X16XI32_8XI32",
    )
    return Step(
        name=name,
        title=title,
        commands=(
            (
                *(*_CLI, "parity", "--framework", "pytorch,jax", "--timeout", "120"),
                *("-name", f"models/({'|'.join(names)})/inputs/INPUT_DATA_MODEL_DEFAULT"),
                *("--backend", ",".join(competitors)),
                *("-device", machine.device, "-o", str(machine.scratch / f"{name}.json")),
                *("--jobs", str(max(1, min(8, machine.cpus // 2))) if machine.on_gpu else "2"),
            ),
        ),
        limit_s=limit_s,
        writes=(f"{name}.json",),
        untimed=untimed,
    )


def _tests(machine: Machine) -> Step:
    return Step(
        name="tests",
        title="pytest -m gpu",
        commands=(
            (
                *("-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-rs"),
                # The machine's packages may raise warnings that our locked ones do not.
                *("-o", "filterwarnings=default", "--rootdir", str(CHECKOUT)),
                *("-c", str(CHECKOUT / "pyproject.toml")),
                # Strict options refuse settings of plug-ins that a bare machine lacks.
                *("-o", "addopts="),
                # Other tests of the folder import packages that a bare machine lacks.
                str(CHECKOUT / "tests" / "gpu" / "test_on_a_gpu.py"),
                f"--junitxml={machine.scratch / 'tests.xml'}",
            ),
        ),
        limit_s=150,
        writes=("tests.xml",),
        needs=("pytest",),
        untimed=True,
    )


def _prepare(machine: Machine) -> list[Step]:
    if not machine.on_gpu:  # the rehearsal races only tiny models
        return []
    command = (
        *("-m", "gpu_check.races", "prepare", "--device", machine.device),
        *("--backend", ",".join(machine.competitors()), "-name", "models/CHECK_.+_FP32_.+"),
    )
    return [
        Step(
            name="prepare",
            title="checkpoints and float64 truths of the large models, on the CPU",
            commands=(command,),
            limit_s=180,
            untimed=True,
        )
    ]


def _faults(machine: Machine) -> Step:
    return Step(
        name="faults",
        title="planted faults: each affects only its own trial",
        commands=(
            (
                *("-m", "gpu_check.faults", "--device", machine.device),
                *("--scratch", str(machine.scratch)),
                *("--answer", str(machine.scratch / "faults.answer.json")),
                # The first run on a GPU loads gigabytes of libraries.
                *("--first-run", "20" if machine.on_gpu else "8"),
            ),
        ),
        limit_s=120,
        needs=("torch", "transformers"),
    )


def _measure(machine: Machine) -> Step:
    competitors = [*machine.competitors(), *machine.cuda_graphs()]
    if machine.on_gpu and machine.has("iree.compiler", "iree.runtime"):
        competitors.append("iree:cuda")
    return _race(
        machine,
        name="measure",
        title="tiny BERT: device memory, device clock, cold and warm compile",
        cases=r"models/BERT_TINY_FP32_\w+_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT",
        competitors=competitors,
        limit_s=150,
    )


def _iree_programs(machine: Machine) -> list[Step]:
    """Runs precompiled programs through IREE if its compiler is not installed."""
    if machine.programs is None or not machine.on_gpu or machine.has("iree.compiler"):
        return []
    locks = machine.scratch / "locks"
    manifests = sorted(machine.programs.rglob("manifest.json"))
    folders = [str(path.parent) for path in manifests]
    # A program alone cannot verify a model that generates.
    names = rf"models/(BERT_TINY|RESNET_TINY)_({'|'.join(_DATA_TYPES)})_JAX_.+_BATCH1/.+DEFAULT"
    return [
        Step(
            name="iree-programs",
            title="IREE with precompiled programs",
            commands=(
                (*_CLI, "artifacts", "lock", *folders, "-o", str(locks / "programs.json")),
                (
                    *(*_CLI, "run", "--backend", "iree:cuda", "--exported-programs"),
                    *("-name", names, "-device", machine.device, "-w", "5", "-iter", "50"),
                    *("-o", str(machine.scratch / "races.json")),
                ),
            ),
            limit_s=90,
            writes=("races.json",),
            needs=("iree.runtime", "jax", "flax"),
            variables={"CBS_LOCKS_DIR": str(locks)},
        )
    ]


def _pairs(machine: Machine) -> Step:
    use_jax = machine.has("jax", "flax")
    backend = "jax_xla:xla" if use_jax else "pt_inductor:eager"
    model = f"BERT_TINY_FP32_{'JAX' if use_jax else 'PT'}_32XI32_BATCH1"
    return Step(
        name="pairs",
        title="verdicts on equal programs, and on a slow-down of 3 %",
        commands=(
            (
                *("-m", "gpu_check.races", "pairs", "--device", machine.device),
                *("--backend", backend, "--model", model, "--pairs", "10"),
                *("--answer", str(machine.scratch / "pairs.answer.json")),
            ),
        ),
        limit_s=200 if machine.on_gpu else 130,
        needs=("jax", "flax") if use_jax else ("torch", "transformers"),
    )


def _ceilings(machine: Machine) -> Step:
    return Step(
        name="ceilings",
        title="fastest matrix products and copy of this device",
        commands=(
            (
                *(*_CLI, "doctor", "--ceilings", "-device", machine.device),
                *("--budget", "60" if machine.on_gpu else "30"),
            ),
        ),
        limit_s=90,
    )


def _races(machine: Machine) -> list[Step]:
    """BERT, ResNet and ViT at a small and a large batch; tiny ones in the rehearsal."""
    if machine.on_gpu:
        return [
            _race(
                machine,
                name=f"{model.split('_')[0].lower()}-{batch}",
                title=f"{model} at batch {batch}: a race with verdicts",
                cases=rf"models/CHECK_{model}_FP32_\w+_BATCH{batch}/.+",
                competitors=machine.competitors(),
                limit_s=180,
            )
            for model, batch in _LARGE
        ]
    # Inductor's compiles take most of a race's time on a CPU, and `measure` includes them.
    quick = [name for name in machine.competitors() if name != "pt_inductor:inductor"]
    return [
        _race(
            machine,
            name=f"{model.lower()}-tiny-{batch}",
            title=f"tiny {model} at batch {batch}: a race with verdicts",
            cases=rf"models/{model}_TINY_FP32_\w+_BATCH{batch}/inputs/INPUT_DATA_MODEL_DEFAULT",
            competitors=quick,
            limit_s=90,
        )
        for model, batch in (("BERT", 4), ("RESNET", 4))
    ]


def _race(
    machine: Machine,
    *,
    name: str,
    title: str,
    cases: str,
    competitors: Sequence[str],
    limit_s: float,
) -> Step:
    return Step(
        name=name,
        title=title,
        commands=(
            (
                *(*_CLI, "run", "--suite", "gpu_check.races", "-name", cases),
                *("--backend", ",".join(competitors), "-device", machine.device),
                *("--processes", "3"),
                *("-o", str(machine.scratch / "races.json")),
            ),
        ),
        limit_s=limit_s,
        writes=("races.json",),
    )
