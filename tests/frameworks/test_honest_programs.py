"""Right programs are never called wrong in any stack, and wrong programs never pass.

`python -m pytest tests -k honest` prints how many were judged, and how.
"""

import contextlib
import warnings
from collections import Counter

import ml_dtypes
import numpy as np
import pytest
import torch
from cbs_test_plugin.honest import GROUPS, Function, programs

from comparative_benchmark.analysis.verification.verification import open_array, sum_length, verify
from comparative_benchmark.backends.api import BackendContext, UnsupportedError, load_object
from comparative_benchmark.engine.worker.preparing import JudgedBy
from comparative_benchmark.pt_inductor import reference
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.workload_store import due_in
from openxla.benchmark.devices import HOST_CPU
from openxla.benchmark.user_models.python_files.in_torch import TorchModel, as_array

pytestmark = pytest.mark.frameworks

PROGRAMS = programs()
STACKS = {
    "pt_inductor:eager": "comparative_benchmark.pt_inductor.backend:PtInductor",
    "onnxruntime:default": "comparative_benchmark.onnxruntime.backend:OnnxRuntime",
    "openvino:latency": "comparative_benchmark.openvino.backend:OpenVino",
    "pt_inductor:inductor": "comparative_benchmark.pt_inductor.backend:PtInductor",
}
# The first program of each class runs in the usual tier, without Inductor's compiles.
SAMPLE = [next(program for program in PROGRAMS if program.kind == kind) for kind in GROUPS]
FEWEST_STACKS = 3
COUNTS: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def settings():
    """Leaves PyTorch's settings as it found them, and prints what was judged."""
    yield
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(False)


class Prepared:
    """A program with its inputs, truth and reference on disk."""

    def __init__(self, program, folder):
        module, tensors = program.make()
        self.data_type = (
            program.name.rpartition("-")[2] if program.kind == "deep-16-bit" else "fp32"
        )
        self.model = TorchModel(module, {"data_type": self.data_type})
        self.inputs = [as_array(tensor) for tensor in tensors]
        self.folder = folder
        judged_by = JudgedBy(
            compute=reference.compute,
            reference="comparative_benchmark.pt_inductor.reference:compute",
            model=self.model,
            generates=False,
            in_own_type=reference.in_own_type,
            nearby=reference.nearby,
        )
        judged_by.save(self.inputs, folder)
        self.due = due_in(folder, prefix="")

    def verdict(self, stack):
        """Returns the verdict on the outputs of a stack; None if it cannot run the program."""
        backend_class, work_dir = load_object(STACKS[stack]), self.folder / stack.replace(":", "-")
        work_dir.mkdir()
        context = BackendContext(
            compiler=stack.partition(":")[2],
            # Operations without 16-bit kernels compute in float32, and the result records it.
            options=("widened",) if self.data_type != "fp32" and "pt_" not in stack else (),
            device=HOST_CPU,
            threads=1,
            work_dir=work_dir,
            phase=lambda _: contextlib.nullcontext(),
        )
        torch.compiler.reset()  # all functions share one frame, which Dynamo compiles eight times
        try:
            backend = backend_class(context)
            backend.load(self.model, self.inputs)
            backend.compile()
            outputs = backend.dispatch()
            backend.synchronize(outputs)
            values = backend.fetch(backend.complete(outputs))
        except UnsupportedError:
            return None
        return self.judged(values, work_dir / "outputs")

    def judged(self, values, folder):
        """Returns the verdict on outputs."""
        files = array_files.save_all(folder, "output", values)
        shapes = [
            [open_array(path).shape for path in paths]
            for paths in (self.due.inputs, self.due.truth)
        ]
        return verify(
            [folder / file["file"] for file in files],
            self.due.truth,
            self.due.reference,
            neighbours=self.due.neighbours_by_output,
            longest_sum=sum_length(*shapes),
        )


def check(program, folder, stacks):
    """Judges a program on stacks: none may call it wrong, and enough must run it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the stacks warn about unusual programs
        prepared = Prepared(program, folder)
        verdicts = {stack: prepared.verdict(stack) for stack in stacks}
    wrong = {
        stack: verdict.reason
        for stack, verdict in verdicts.items()
        if verdict is not None and not verdict.passed and not verdict.undecided
    }
    assert not wrong
    ran = [verdict for verdict in verdicts.values() if verdict is not None]
    COUNTS["programs"] += 1
    COUNTS["judged right"] += sum(verdict.passed for verdict in ran)
    COUNTS["not judged"] += sum(verdict.undecided for verdict in ran)
    COUNTS["unsupported"] += len(verdicts) - len(ran)
    return ran


@pytest.mark.parametrize("program", SAMPLE, ids=str)
def test_an_honest_program_of_each_class_is_not_accused(program, tmp_path):
    assert check(program, tmp_path, [name for name in STACKS if name != "pt_inductor:inductor"])


def test_a_picture_of_bytes_has_ties(tmp_path):
    (program,) = (program for program in PROGRAMS if program.name == "resized-pixels")
    assert check(program, tmp_path, ["onnxruntime:default", "openvino:latency"])


X = torch.linspace(-2, 2, 16).reshape(1, 1, 4, 4)
REQUESTS_FLOAT32 = {
    "cast": lambda x: x.float().sin(),
    "result": lambda x: x.softmax(-1, dtype=torch.float32),
    "constant": lambda x: torch.conv2d(x, torch.tensor([[[[0.5, 1]]]], dtype=torch.float32)),
    "state": lambda x: x @ torch.full((4, 4), 0.5, dtype=torch.float32),
    "bits": lambda x: x.sin() + torch.full((4,), 1 << 30, dtype=torch.int32).view(torch.float32),
    "complex": lambda x: (x.to(torch.complex64) * 1j).exp().real,
}


@pytest.mark.parametrize("name", REQUESTS_FLOAT32)
def test_a_model_that_requests_float32_has_a_float64_truth(name):
    function = REQUESTS_FLOAT32[name]
    model = TorchModel(Function(function), {"data_type": "fp32"})
    (truth,), (own,) = reference.compute(model, [as_array(X)])
    assert truth.dtype == np.float64
    assert np.abs(truth - own).max() < 1e-6
    # No number was rounded to float32 on the way.
    assert name in ("state", "constant") or (truth != truth.astype(np.float32)).any()
    assert reference.remark(model, [as_array(X)]) is None


def test_a_model_that_requests_a_coarser_type_has_no_float64_truth():
    model = TorchModel(
        torch.nn.Sequential(Function(lambda x: x.bfloat16().float()), torch.nn.Linear(4, 4)),
        {"data_type": "fp32"},
    )
    with pytest.raises(reference.RoundsError, match="forward computes in bfloat16"):
        reference.compute(model, [as_array(X)])


@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
def test_seeded_noise_is_the_same_in_the_truth(draw):
    def noisy(x):
        return x + 0.01 * draw(x.shape, generator=torch.Generator().manual_seed(0)).sin()

    x = torch.linspace(-2, 2, 64)
    model = TorchModel(Function(noisy), {"data_type": "fp32"})
    (truth,), (own,) = reference.compute(model, [as_array(x)])
    assert np.abs(truth - own).max() < 1e-6


def test_complex_inputs_and_weights_have_a_truth_in_double():
    class Turned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 0.7 - 0.1j, dtype=torch.complex64))

        def forward(self, x):
            return (x * self.weight).exp()

    x = torch.polar(torch.ones(4), torch.linspace(0, 3, 4))
    model = TorchModel(Turned(), {"data_type": "fp32"})
    (truth,), (own,) = reference.compute(model, [as_array(x)])
    assert (truth.dtype, own.dtype) == (np.complex128, np.complex64)
    assert 0 < np.abs(truth - own).max() < 1e-6
    assert reference.remark(model, [as_array(x)]) is None
    cut = TorchModel(
        Function(lambda x: torch.view_as_complex(torch.view_as_real(x).half().float())),
        {"data_type": "fp32"},
    )
    assert "float16" in reference.remark(cut, [as_array(x)])


def test_masks_of_bytes_are_not_moved():
    x = torch.randn(4, 8)
    shown = (x > 0).to(torch.uint8)
    model = TorchModel(
        Function(lambda x, shown: x - 1e9 * (1 - shown.float())), {"data_type": "fp32"}
    )
    inputs = [as_array(x), as_array(shown)]
    with reference.changed_weights(model, np.random.default_rng(0), 2.0):
        (masked,) = reference.in_own_type(model, inputs)
    assert (masked == reference.in_own_type(model, inputs)[0]).all()


@pytest.mark.nightly
def test_no_honest_program_is_accused(tmp_path_factory, capsys):
    few = []
    for program in PROGRAMS:
        ran = check(program, tmp_path_factory.mktemp("honest"), STACKS)
        if len(ran) < FEWEST_STACKS:
            few.append(str(program))
    with capsys.disabled():
        told = ", ".join(f"{count} {name}" for name, count in COUNTS.items())
        print(f"\nhonest programs: {told}, 0 accused; on fewer than three stacks: {few}")
    assert len(PROGRAMS) - len(few) >= 80


def _with_one_off(values):
    wrong = values.copy()
    flat = wrong.reshape(-1)
    finite = np.flatnonzero(np.isfinite(flat.astype(np.float64)))
    scale = np.sqrt(np.mean(np.square(flat[finite].astype(np.float64))))
    flat[finite[len(finite) // 2]] += np.asarray(scale).astype(flat.dtype)
    return wrong


def _with_last_row_of_first(values):
    return np.concatenate([values[:-1], values[:1]])


FAULTS = {
    "2 % more": lambda values: (values.astype(np.float64) * 1.02).astype(values.dtype),
    "negated": np.negative,
    "zeros": lambda values: np.where(np.isfinite(values), np.zeros_like(values), values),
    "rows reversed": lambda values: values[::-1],
    "last row is the first": _with_last_row_of_first,
    "in bf16": lambda values: values.astype(ml_dtypes.bfloat16).astype(values.dtype),
    "one element off": _with_one_off,
    "shifted": lambda values: np.roll(values, 1, -1),
}


def planted(prepared):
    """Yields outputs with a fault in one of them: floating-point numbers, and not too few."""
    right = [open_array(path) for path in prepared.due.reference]
    for index, values in enumerate(right):
        if values.dtype.kind in "iub" or values.ndim == 0 or values.size < 2:
            continue
        for name, fault in FAULTS.items():
            if name == "in bf16" and values.dtype != np.float32:
                continue
            with np.errstate(all="ignore"):
                wrong = fault(values)
            if _differs(wrong, values):
                yield f"{name} in output {index}", [*right[:index], wrong, *right[index + 1 :]]


def _differs(wrong, right):
    """Returns whether a fault changes an output by more than its own rounding hides."""
    wrong, right = wrong.astype(np.float64), right.astype(np.float64)
    if not np.array_equal(np.isfinite(wrong), np.isfinite(right)):
        return True
    finite = np.isfinite(right)
    scale = np.sqrt(np.mean(np.square(right[finite]))) if finite.any() else 0.0
    return (
        np.sqrt(np.mean(np.square(wrong[finite] - right[finite]))) > 2e-3 * scale
        if scale
        else False
    )


def test_adversarial_outputs_are_all_caught(tmp_path_factory, capsys):
    count, passed = 0, []
    for program in PROGRAMS:
        prepared = Prepared(program, tmp_path_factory.mktemp("planted"))
        for place, (name, outputs) in enumerate(planted(prepared)):
            count += 1
            if prepared.judged(outputs, prepared.folder / f"planted-{place}").passed:
                passed.append(f"{program}: {name}")
    with capsys.disabled():
        print(f"\noutputs of honest programs: {count} faults planted, {count - len(passed)} caught")
    assert not passed
    assert count > 400
