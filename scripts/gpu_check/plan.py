"""What the check does, in which order: the most telling steps first.

A step is a command of the suite, run in a process group of its own with a time limit. Nothing here
runs anything.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

_DATA_TYPES = ("FP32", "BF16", "FP16")
# The large models and their batch sizes: each model soon, both sizes soon.
_LARGE = (
    *(("BERT_BASE", 1), ("RESNET50", 32), ("VIT_BASE", 32)),
    *(("BERT_BASE", 32), ("RESNET50", 1), ("VIT_BASE", 1)),
)
_CLI = ("-m", "comparative_benchmark")
_HERE = "gpu_check"
_SUITE = ("--suite", f"{_HERE}.suite")


@attrs.frozen(kw_only=True)
class Step:
    """One step of the check.

    Attributes:
      name: short, for `--steps` and file names.
      title: what it shows, for people.
      commands: run one after the other; arguments of the interpreter, or, where the first one is
        not an option, of a program.
      limit_s: seconds for all of them.
      writes: files that it makes in the scratch folder, or adds to, for the output folder.
      needs: modules without which it cannot run.
      beside: whether it may run beside other such steps: nothing in it is timed.
      must_pass: whether a command's exit code other than 0 is a failure of the step.
      variables: environment variables of its processes.
    """

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    limit_s: float
    writes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    beside: bool = False
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
    """What decides which steps there are.

    Attributes:
      device: name of the device, `host-gpu` or `host-cpu`.
      output: folder of the results.
      scratch: folder of everything else, outside the checkout.
      modules: names of those that are installed, as far as steps ask for them.
      programs: published programs for IREE, where the wheel folder has some.
      cpus: how many may be used.
    """

    device: str
    output: Path
    scratch: Path
    modules: frozenset[str]
    programs: Path | None = None
    cpus: int = attrs.field(factory=lambda: len(os.sched_getaffinity(0)))

    @property
    def on_gpu(self) -> bool:
        """Whether this is the real thing, and no rehearsal."""
        return self.device != "host-cpu"

    def has(self, *names: str) -> bool:
        """Returns whether all these modules are installed."""
        return set(names) <= self.modules


MODULES = (
    *("torch", "transformers", "jax", "flax", "iree.compiler", "iree.runtime"),
    *("pytest", "jinja2"),
)


def steps(machine: Machine) -> list[Step]:
    """Returns all steps in order; what lacks its modules is among them."""
    races = _races(machine)
    return [
        _environment(machine),
        _matrix(machine),
        _tests(machine),
        *_prepare(machine),
        _faults(machine),
        _ceilings(machine),  # a race without them would measure them itself
        _measure(machine),
        *_iree_programs(machine),
        races[0],
        _pairs(machine),
        *races[1:],
        *_autotune(machine),
    ]


def _environment(machine: Machine) -> Step:
    asked = (("nvidia-smi",),) if machine.on_gpu else ()
    return Step(
        name="environment",
        title="driver, device, packages and disturbances",
        commands=(*asked, (*_CLI, "backends"), (*_CLI, "doctor")),
        limit_s=40,
        must_pass=False,
    )


def _matrix(machine: Machine) -> Step:
    return _parity(
        machine,
        name="matrix",
        title="correctness of tiny BERT, ResNet and GPT-2 generation in fp32, bf16 and fp16",
        competitors=_all_competitors(machine),
        limit_s=240,
        beside=True,
    )


def _autotune(machine: Machine) -> list[Step]:
    """Each cell compiles for half a minute on a GPU, and for minutes on a CPU."""
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
    beside: bool = False,
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
        beside=beside,
    )


def _tests(machine: Machine) -> Step:
    return Step(
        name="tests",
        title="pytest -m gpu",
        commands=(
            (
                *("-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-rs"),
                # Which warnings the machine's own packages raise is nobody's fault here.
                *("-o", "filterwarnings=default", "--rootdir", str(checkout())),
                *("-c", str(checkout() / "pyproject.toml")),
                str(checkout() / "tests" / "gpu" / "test_on_a_gpu.py"),
                f"--junitxml={machine.scratch / 'tests.xml'}",
            ),
        ),
        limit_s=150,
        writes=("tests.xml",),
        needs=("pytest",),
        beside=True,
    )


def _prepare(machine: Machine) -> list[Step]:
    if not machine.on_gpu:  # what the rehearsal races is tiny
        return []
    command = (
        *("-m", f"{_HERE}.prepare", "--device", machine.device),
        *("--backend", ",".join(_usual_competitors(machine)), "-name", "models/CHECK_.+_FP32_.+"),
    )
    return [
        Step(
            name="prepare",
            title="checkpoints and float64 truths of the large models, on the CPU",
            commands=(command,),
            limit_s=180,
            beside=True,
        )
    ]


def _faults(machine: Machine) -> Step:
    return Step(
        name="faults",
        title="planted faults: each affects only its own trial",
        commands=(
            (
                *("-m", f"{_HERE}.planted.faults", "--device", machine.device),
                *("--scratch", str(machine.scratch)),
                *("--answer", str(machine.scratch / "faults.answer.json")),
                # The first run on a GPU loads libraries of gigabytes.
                *("--first-run", "20" if machine.on_gpu else "8"),
            ),
        ),
        limit_s=120,
        needs=("torch", "transformers"),
    )


def _measure(machine: Machine) -> Step:
    competitors = [*_usual_competitors(machine), *_cuda_graphs(machine)]
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
    """IREE from programs compiled elsewhere, where its compiler is not at hand."""
    if machine.programs is None or not machine.on_gpu or machine.has("iree.compiler"):
        return []
    locks = machine.scratch / "locks"
    manifests = sorted(machine.programs.rglob("manifest.json"))
    folders = [str(path.parent) for path in manifests]
    # A model that generates cannot be verified by a program alone.
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
    limit_s = 200.0 if machine.on_gpu else 130.0
    use_jax = machine.has("jax", "flax")
    backend = "jax_xla:xla" if use_jax else "pt_inductor:eager"
    model = f"BERT_TINY_FP32_{'JAX' if use_jax else 'PT'}_32XI32_BATCH1"
    return Step(
        name="pairs",
        title="verdicts on equal programs, and on a slow-down of 3 %",
        commands=(
            (
                *("-m", f"{_HERE}.pairs", "--device", machine.device, "--backend", backend),
                *("--model", model, "--pairs", "10"),
                *("--answer", str(machine.scratch / "pairs.answer.json")),
            ),
        ),
        limit_s=limit_s,
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
                competitors=_usual_competitors(machine),
                limit_s=180,
            )
            for model, batch in _LARGE
        ]
    # Inductor's compiles take most of a race's time on a CPU, and `measure` has them.
    slow = "pt_inductor:inductor"
    quick = [name for name in _usual_competitors(machine) if name != slow]
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
                *(*_CLI, "run", *_SUITE, "--backend", ",".join(competitors), "-name", cases),
                *("-device", machine.device, "--processes", "3"),
                *("-o", str(machine.scratch / "races.json")),
            ),
        ),
        limit_s=limit_s,
        writes=("races.json",),
    )


def _usual_competitors(machine: Machine) -> list[str]:
    competitors = []
    if machine.has("torch"):
        competitors += ["pt_inductor:eager", "pt_inductor:inductor"]
    if machine.has("jax", "flax"):
        competitors.append("jax_xla:xla")
    return competitors


def _cuda_graphs(machine: Machine) -> list[str]:
    return ["pt_inductor:inductor+cuda-graphs"] if machine.on_gpu and machine.has("torch") else []


def _all_competitors(machine: Machine) -> list[str]:
    competitors = [*_usual_competitors(machine), *_cuda_graphs(machine)]
    if machine.has("iree.compiler", "iree.runtime"):
        competitors.append("iree:cuda" if machine.on_gpu else "iree:llvm-cpu")
    return competitors


def checkout() -> Path:
    """Returns the checkout that this file is in."""
    return Path(__file__).resolve().parents[2]
