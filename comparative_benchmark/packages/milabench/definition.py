"""What makes two results of a benchmark comparable: the same work, on the same device."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from comparative_benchmark.packages.milabench.config import Bench
from comparative_benchmark.results.record import Definition, WorkloadRecord

BACKEND, COMPILER = "milabench", "script"


def definition(bench: Bench, device: str, config: Mapping[str, Any], units: str) -> Definition:
    """Returns what a benchmark is in a results file.

    Args:
      bench: which.
      device: as `-device` names it.
      config: that its processes got.
      units: of its rates.
    """
    # What decides how much work an item is; not the code, whose speed is the question.
    asked = {name: config.get(name) for name in ("argv", "plan", "client", "server")}
    digest = _digest([bench.name, asked, units, device])
    return Definition(
        benchmark_name=f"milabench/{bench.name}",
        framework="ModelFrameworkType.SCRIPT",
        data_type=None,
        batch_size=None,
        compiler=COMPILER,
        device=device,
        tags=bench.tags,
        backend=BACKEND,
        level="framework_level",
        options=(),
        environment=bench.environment,
        model=bench.name,
        model_parameters={
            **_scalars(config.get("argv")),
            "source_sha256": _source_digest(bench),
            "config": bench.place.rsplit(":", 2)[0],
        },
        verify_parameters={},
        input_data="its own",
        workload=WorkloadRecord(
            id=f"milabench/{bench.name}",
            digest=digest,
            # Times of such a result are of one unit of work, in all tables.
            label=f"{bench.name}, time per {_unit(units)}",
            architecture=f"milabench/{bench.name}",
            config_digest=_digest(asked),
            checkpoint="its own",
            data_type=None,
            inputs=(),
            input_digest=_digest("its own"),
        ),
    )


def _unit(units: str) -> str:
    """Returns what a rate counts, e.g. `item` of `items/s`."""
    counted = units.removesuffix("/s").removesuffix("s")
    return counted or units


def _scalars(argv: Any) -> dict[str, Any]:
    if not isinstance(argv, dict):
        return {}
    return {n: v for n, v in argv.items() if v is None or isinstance(v, str | int | float | bool)}


def _source_digest(bench: Bench) -> str:
    digest = hashlib.sha256()
    for path in sorted(bench.folder.rglob("*.py")):
        if path.is_file() and not path.is_symlink():
            digest.update(f"{path.relative_to(bench.folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
