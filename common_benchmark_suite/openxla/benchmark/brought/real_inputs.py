"""Cases on arrays that are made of something real: a text or a picture."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from openxla.benchmark.artifacts import user_inputs
from openxla.benchmark.artifacts.arrays import save_all
from openxla.benchmark.def_types import BenchmarkCase, Model
from openxla.benchmark.files import new_directory
from openxla.benchmark.models.architectures.base import digest_of
from openxla.benchmark.root import root_dir

_WHOLE = "input_0.npy"


def cases_on(
    cases: Sequence[BenchmarkCase],
    made_of: Sequence[str],
    arrays: Callable[[Model], Sequence[Any]],
) -> list[BenchmarkCase]:
    """Returns cases on the arrays, which are made once and kept below the artifact root.

    Args:
      cases: of one model.
      made_of: what decides the arrays besides architecture, type, batch and length.
      arrays: makes those of a model.
    """
    found = []
    for case in cases:
        parameters = case.model.model_parameters
        kind = [
            case.model.model_impl.architecture,
            *(parameters.get(key) for key in ("data_type", "batch_size", "seq_len")),
        ]
        target = root_dir() / "inputs" / digest_of([*made_of, *map(str, kind)])[:32]
        if not (target / _WHOLE).is_file():
            _write(target, arrays(case.model))
        given = user_inputs.read(target)
        if case.model.model_impl.architecture is None:
            found.append(BenchmarkCase.build(model=case.model, input_data=given.data))
        else:
            found += user_inputs.cases_with([case], given)
    return found


def _write(target: Path, arrays: Sequence[Any]) -> None:
    with new_directory(target, whole_with=_WHOLE) as directory:
        save_all(directory, "input", arrays)
