"""Tests that verification limits lie between correct programs and lower precisions.

For each tiny PyTorch model and each data type, the script compares three errors: the largest error
of correct programs (the reference, and every `ok` cell of a parity file), the limit, and the errors
of the same model when it computes in each of the next two lower precisions. Errors are measured as
in verification: root mean square against the float64 run, relative to the truth's root mean square.
There are two margins: the limit divided by the largest error of a correct program, and the smallest
lower-precision error divided by the limit.

    python benchmarks/separation.py [--parity results/parity.json] [-name REGEX] [--output FILE]
        [--table docs/concepts/separation.md]
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from _coarser import COARSER, Coarser, math_attention
from _timing import print_goal, print_table

from comparative_benchmark.analysis.verification.error_limits import error_limits
from comparative_benchmark.backends.api import Array, ModelDefinition
from comparative_benchmark.engine.worker.preparing import make_inputs
from comparative_benchmark.pt_inductor.reference import compute
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import BenchmarkCase, ModelFrameworkType
from openxla.benchmark.models.architectures.base import DATA_TYPES
from openxla.benchmark.models.model_interfaces import LOGITS
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.workloads import generated_tokens, workload_of

MARGIN = 1.5
_HEADER = (
    "model",
    "type",
    "correct",
    "by",
    "allowed",
    "lower precision",
    "margin",
    "of parts",
    "margin below",
)
_PREFACE = """# Limits between correct and lower-precision programs

The error of an output must stay below a limit. This limit should be larger than the error of every
correct program. It should also be smaller than the error of any program that computes in a lower
precision, for example in int8 instead of bf16. This page shows both errors for each tiny model and
data type. [Design note 0001](../design/0001-verification.md) explains how the limits are chosen.

`benchmarks/separation.py --parity FILE --table docs/concepts/separation.md` generates this page.
`FILE` is a results file from `cbs parity`.

The *truth* is the float64 run. An error is the root mean square of the differences from the truth,
divided by the truth's root mean square. The columns are:

- *correct*: the largest error of all correct programs.
- *by*: the program with this error. It is the reference (an op-by-op run in the model's own type),
  or a cell of the [matrix of all backends](parity.md).
- *allowed*: the limit.
- *lower precision*: the errors of the same model when it computes in each of the next two lower
  precisions. The operands of all matrix products and convolutions are rounded to that precision.
- *margin*: the limit divided by the largest error of a correct program.
- *of parts* (if shown): the same margin, for the part of an output that is nearest to its limit. A
  part consists of elements of similar magnitude, or of elements at one position along an axis. `-`
  means that no parts are compared.
- *margin below*: the smallest lower-precision error divided by the limit.

The results file is from a CPU with AVX512-FP16. On such a CPU, OpenVINO computes natively in fp16,
with larger errors than other backends. Ten of OpenVINO's tiny fp16 programs are `wrong_output`, and
are not counted as correct.

"""


@attrs.frozen(kw_only=True)
class Row:
    """Errors of one model in one data type.

    Attributes:
      allowed: the limit.
      honest, honest_by: the largest error of correct programs, and the program with this error.
      part: the largest error of a part of their outputs, as a fraction of its limit; or None.
      coarser: the error for each lower precision.
      spread: the truth's standard deviation, relative to its root mean square.
    """

    label: str
    data_type: str
    allowed: float
    reference: float
    honest: float
    honest_by: str
    part: float | None
    coarser: dict[str, float]
    spread: float

    @property
    def cells(self) -> list[str]:
        """The row's table cells."""
        return [
            self.label,
            self.data_type,
            f"{self.honest:.1e}",
            self.honest_by,
            f"{self.allowed:.1e}",
            ", ".join(f"{name} {error:.1e}" for name, error in self.coarser.items()),
            f"{self.above:.1f}",
            f"{1 / self.part:.1f}" if self.part else "-",
            f"{self.below:.2g}",
        ]

    @property
    def above(self) -> float:
        """Margin above correct programs, for whole outputs."""
        return self.allowed / self.honest

    @property
    def below(self) -> float:
        """Margin below the lower-precision program with the smallest error."""
        return min(self.coarser.values()) / self.allowed

    @property
    def is_separated(self) -> bool:
        """Whether both margins are wide enough."""
        of_parts = 1 / self.part if self.part else MARGIN
        return min(self.above, of_parts, self.below) >= MARGIN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parity", type=Path, help="results file from `cbs parity`")
    parser.add_argument("-name", default=r"models/.*TINY.*", help="regular expression for cases")
    parser.add_argument("--output", type=Path, help="JSON Lines file to write the rows to")
    parser.add_argument("--table", type=Path, help="Markdown file to write the table to")
    options = parser.parse_args()
    honest, parts = _honest(options.parity) if options.parity else ({}, {})
    rows: list[Row] = []
    for case in _cases(options.name):
        try:
            rows.append(_row(case, honest, parts))
        except Exception as error:
            print(f"{case.name}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        if options.output:
            with options.output.open("a") as file:
                file.write(json.dumps(attrs.asdict(rows[-1])) + "\n")
    print_table(_HEADER, [row.cells for row in rows])
    if options.table:
        options.table.write_text(_markdown(rows))
    separated = [row for row in rows if row.is_separated]
    print_goal(
        f"a margin of {MARGIN} on both sides for every model and data type",
        met=len(separated) == len(rows),
        found=f"{len(separated)} of {len(rows)}",
    )


def _markdown(rows: Sequence[Row]) -> str:
    narrow = [row for row in rows if not row.is_separated]
    summary = f"Both margins are at least {MARGIN} in {len(rows) - len(narrow)} of {len(rows)} rows"
    summary += ". The other rows are in bold.\n" if narrow else ".\n"
    lines = [f"| {' | '.join(_HEADER)} |", "|---" * len(_HEADER) + "|"]
    for row in rows:
        label, *others = row.cells
        shown = label if row.is_separated else f"**{label}**"
        lines.append(f"| {' | '.join((shown, *others))} |")
    return _PREFACE + summary + "\n" + "\n".join(lines) + "\n"


def _cases(name: str) -> list[BenchmarkCase]:
    """Returns one case for each tiny PyTorch model."""
    found: dict[str, BenchmarkCase] = {}
    for case in catalog.select(catalog.all_benchmarks(), name=name):
        model = case.model
        is_pytorch = model.model_impl.framework_type is ModelFrameworkType.PYTORCH
        if is_pytorch and model.model_parameters.get("data_type") in COARSER:
            found.setdefault(model.name, case)
    return list(found.values())


def _honest(path: Path) -> tuple[dict[str, tuple[float, str]], dict[str, float]]:
    """Returns each workload's largest error in `ok` cells, with its cell; and of their parts."""
    found: dict[str, tuple[float, str]] = {}
    parts: dict[str, float] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["status"] == "ok" and cell["relative_error"]:
            workload = cell["workload"]
            entry = (cell["relative_error"], f"{cell['competitor']} ({cell['framework']})")
            found[workload] = max(found.get(workload, (0.0, "")), entry)
            parts[workload] = max(parts.get(workload, 0.0), cell["worst_part"] or 0.0)
    return found, parts


def _row(case: BenchmarkCase, honest: dict[str, tuple[float, str]], parts: dict[str, float]) -> Row:
    torch.set_grad_enabled(False)
    workload = workload_of(case)
    data_type = str(case.model.model_parameters["data_type"])
    model = ModelDefinition.of(case.model).create()
    inputs = make_inputs(model, case.input_data.name, [])
    truth, reference = compute(model, inputs)
    fed: Sequence[Array] = inputs
    if generated_tokens(case) is not None:
        fed = model.verification_inputs(inputs, truth)
        truth, reference = compute(model, fed)
        truth, reference = truth[LOGITS:], reference[LOGITS:]
    tensors = [as_tensor(value) for value in fed]
    coarser = {}
    for name, rounding in COARSER[data_type].items():
        with math_attention(), Coarser(rounding) as mode:
            outputs = [np.asarray(_host(v)) for v in as_tuple(model.forward(*tensors))]
        if not mode.products:
            raise RuntimeError("the model contains no products to round")
        coarser[name] = _error(outputs[-len(truth) :], truth)
    own = _error(reference, truth)
    largest, by = max(honest.get(workload.digest, (0.0, "")), (own, "reference"))
    due = np.concatenate([np.ravel(value) for value in truth])
    scale, spread = float(np.sqrt((due**2).mean())), float(due.std())
    limits = error_limits(
        DATA_TYPES[data_type],
        rmse=own * scale,
        largest=0.0,  # only the error of all elements is compared
        spread=spread,
        size=due.size,
        parameters={},
    )
    return Row(
        label=re.sub(r"^models/|/inputs/.*$", "", case.name),
        data_type=data_type,
        allowed=limits.rmse / scale,
        reference=own,
        honest=largest,
        honest_by=by,
        part=parts.get(workload.digest) or None,
        coarser=coarser,
        spread=spread / scale,
    )


def _host(value: torch.Tensor) -> Any:
    return value.double().numpy() if value.is_floating_point() else value.numpy()


def _error(outputs: Sequence[Any], truth: Sequence[Any]) -> float:
    """Returns the largest relative root mean square error over floating-point outputs."""
    found = [
        float(np.sqrt(((np.asarray(o, np.float64) - t) ** 2).mean() / (t**2).mean()))
        for o, t in zip(outputs, truth, strict=True)
        if t.dtype.kind == "f"
    ]
    return max(found)


if __name__ == "__main__":
    main()
