"""`cbs micro`: lists operators and shapes, and races operators over shapes."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from comparative_benchmark.analysis.machine import nvml
from comparative_benchmark.analysis.machine.host import cpu_model
from comparative_benchmark.api.case_selection import Selection
from comparative_benchmark.api.measuring import Measured
from comparative_benchmark.backends import recipes
from comparative_benchmark.cli.commands import run as run_command
from comparative_benchmark.cli.options.studies import DATA_TYPES
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_UNFINISHED,
    EXIT_WRONG,
    UsageError,
    check_place,
)
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Result
from comparative_benchmark.studies.micro import guide, shapes, sweeps
from comparative_benchmark.studies.micro.config import read
from comparative_benchmark.studies.micro.shapes import products_of, shares_of_latency
from comparative_benchmark.studies.micro.sweeps import by_competitor, estimate, why_too_large
from openxla.benchmark import devices, operators
from openxla.benchmark.comparative_suite.operator_cases import cases
from openxla.benchmark.def_types import BenchmarkCase, DefinitionError
from openxla.benchmark.files import write_atomically
from openxla.benchmark.operators import guide_functions

ALL = "all"
# Budgets must be positive; this one is too short for any trial.
_SPENT_S = 1e-3
# Options that conflict with --config or --from-model, which already set their values.
_DEFINED_BY: Mapping[str, Sequence[str]] = {
    "config": ("env", "backend", "shapes", "dtype", "min_power"),
    "from_model": ("shapes", "dtype", "min_power", "max_power"),
}


def run(options: argparse.Namespace) -> int:
    """Runs a subcommand and returns the exit code.

    Raises:
      UsageError: an option is invalid.
    """
    if options.action == "list":
        return _list(options)
    return sweep(options)


def _list(options: argparse.Namespace) -> int:
    listing = {
        "operators": {name: item.description for name, item in operators.operators().items()},
        "shapes": {name: _described(name) for name in shapes.NAMES},
        "recipes": {item.usage: item.description for item in recipes.recipes().values()},
    }
    if options.json:
        print(json.dumps(listing, indent=2))
        return EXIT_OK
    for title, lines in listing.items():
        print(title)
        width = max(map(len, lines))
        for name, description in lines.items():
            print(f"  {name:<{width}}  {description}")
    return EXIT_OK


def _described(name: str) -> str:
    if name == shapes.CUSTOM:
        return "MxKxN, e.g. 64x128x256"
    named = shapes.named(name)
    return f"{len(named)}: {named[0]} to {named[-1]}"


def selected(options: argparse.Namespace) -> list[BenchmarkCase]:
    """Returns the cases that the options select.

    Raises:
      UsageError: an operator, shape or data type does not exist.
    """
    names = _all(options) if options.op == ALL else options.op.split(",")
    types = (options.dtype or "fp32").split(",")
    if unknown := [name for name in types if name not in DATA_TYPES]:
        raise UsageError(f"--dtype {unknown[0]!r} is not one of {', '.join(DATA_TYPES)}")
    sizes = _shapes(options)
    known = operators.operators()
    own = [name for name in names if name not in known and guide_functions.may_be(name)]
    chosen = [_own_cases(name, sizes, data_type, options) for name in own for data_type in types]
    try:
        others = [name for name in names if name not in own]
        return [
            *cases(others, sizes, types, backward=options.backward),
            *(case for of_one in chosen for case in of_one),
        ]
    except DefinitionError as error:
        raise UsageError(str(error)) from error


def _own_cases(
    name: str, sizes: Sequence[shapes.Shape], data_type: str, options: argparse.Namespace
) -> list[BenchmarkCase]:
    """Returns the cases of a model from `create_model_and_input_data()`.

    Raises:
      UsageError: the function does not create a model with that name, or gradients are requested.
    """
    smallest = min(sizes, key=lambda shape: shape.m * shape.k * shape.n)
    shape = (smallest.m, smallest.k, smallest.n)
    if refusal := guide_functions.why_no_model(name, shape, data_type):
        raise UsageError(f"{operators.unknown(name)}; {refusal.clause}{guide_functions.MODEL_HINT}")
    if options.backward:
        raise UsageError(f"{name} supports only the forward pass; omit --backward")
    return [guide_functions.case(name, shape, data_type) for shape in sizes]


def _all(options: argparse.Namespace) -> list[str]:
    known = operators.operators()
    return [n for n, item in known.items() if item.is_differentiable or not options.backward]


def _shapes(options: argparse.Namespace) -> Sequence[shapes.Shape]:
    chosen: list[shapes.Shape] = []
    asked = options.shapes or "small_sweep"
    for text in asked.split(","):
        if text[:1].isdigit():
            chosen.append(shapes.written(text))
        else:
            chosen += shapes.named(text, lowest=options.min_power, highest=options.max_power)
    if not chosen:
        raise UsageError(f"--shapes {asked}: no shape is between --min-power and --max-power")
    return list(dict.fromkeys(chosen))


def sweep(options: argparse.Namespace) -> int:
    """Races the selected cases and returns the exit code.

    Raises:
      UsageError: an option is invalid.
    """
    if options.plot is not None:
        sweeps.check_plot(options.plot)
    if options.own_workers and options.share_workers:
        raise UsageError("--own-workers and --share-workers cannot be combined; use one of them")
    if options.config is not None:
        if options.backward:
            raise UsageError(
                "--backward requires --op; in a --config file, set `benchmark_mode: training`"
            )
        if options.from_model is not None:
            raise UsageError("--config and --from-model cannot be combined; use one of them")
        _refuse_defined(options, "config")
        return _run_guide(options)
    if options.op is None:
        if options.from_model is None:
            raise UsageError("specify what to run: --op NAMES, --from-model REGEX or --config FILE")
        options.op = "matmul"
    options.device = options.device or devices.HOST_CPU.name
    if options.from_model is None:
        return _race(options, selected(options))[0]
    if options.op not in ("matmul", "linear"):
        raise UsageError("--from-model races only matrix products; use --op matmul or --op linear")
    if options.backward:
        raise UsageError("--from-model supports only the forward pass; omit --backward")
    _refuse_defined(options, "from_model")
    model = products_of(options.from_model)
    chosen = [*cases([options.op], model.counts, [model.data_type]), *model.cases]
    return _race(options, chosen, lambda results: shares_of_latency(model, options.op, results))[0]


def _refuse_defined(options: argparse.Namespace, source: str) -> None:
    """Raises UsageError if an option conflicts with the file or model that defines it."""
    for name in _DEFINED_BY[source]:
        if getattr(options, name) is not None:
            spelt, by = (f"--{text.replace('_', '-')}" for text in (name, source))
            raise UsageError(f"{by} and {spelt} cannot be combined; omit one of them")


def _race(
    options: argparse.Namespace,
    chosen: list[BenchmarkCase],
    explain: Callable[[Sequence[Result]], Iterable[str]] = lambda _: (),
) -> tuple[int, list[Result]]:
    results: list[Result] = []

    def after(measured: Measured) -> list[str]:
        results.extend(measured.results)
        lines = [*by_competitor(measured.results, measured.baseline), *explain(measured.results)]
        if options.plot is not None and measured.results:
            competitors = [Case(result=result).competitor for result in measured.results]
            baseline = measured.baseline or competitors[0]
            lines.append(sweeps.draw_plot(measured.results, baseline, options.plot))
        return lines

    code = run_command.run(
        options,
        Selection(
            cases=chosen,
            share_workers=not options.own_workers,
            refuse=why_too_large,
            before=_outlook,
        ),
        after,
    )
    return code, results


def _outlook(trials: Sequence[Trial], settings: RunSettings) -> list[str]:
    outlook = estimate(trials, settings)
    return [str(outlook)] if outlook.trials else []


def _run_guide(options: argparse.Namespace) -> int:
    """Runs a file from torchao's guide, and writes the guide's tables next to the results."""
    config = read(options.config, highest=options.max_power)
    csv_file, json_file = (options.output.with_suffix(end) for end in (".csv", ".oss.json"))
    if options.json and len(config.models) > 1:
        raise UsageError(f"--json supports one model per file; omit it, and read {json_file}")
    if csv_file == options.output:
        raise UsageError(f"-o {csv_file} is the name of the CSV table; choose another name")
    for path in (csv_file, json_file):
        check_place(path, "table")
    device, profile, codes, tables = options.device, options.profile, [], []
    picture, budget_s, started = options.plot, options.budget, time.monotonic()
    for number, model in enumerate(config.models, 1):
        if budget_s is not None:
            options.budget = max(_SPENT_S, budget_s - (time.monotonic() - started))
        options.device = device or model.device
        options.profile = profile or model.profiler or model.memory_profiler
        options.backend = tuple(guide.competitors(config, model))
        if picture is not None and len(config.models) > 1:
            options.plot = picture.with_stem(f"{picture.stem}-{number}")
        code, results = _race(options, guide.cases_of(model))
        codes.append(code)
        tables.append(guide.Table(config, guide.rows(config, model), results))
    if options.dry_run:
        return EXIT_OK
    lines = [line for table in tables for line in table.lines()]
    write_atomically(csv_file, guide.csv_text(config, lines))
    library = nvml.library() if any(line["device"] == "cuda" for line in lines) else None
    gpu = library and nvml.name(library, nvml.device(library, 0))
    write_atomically(json_file, guide.json_text(lines, arch=gpu or cpu_model() or "cpu"))
    print(f"torchao tables: {csv_file}, {json_file}", file=sys.stderr)
    # Recipes that torchao does not support here are rows with a reason, not failures.
    worst_first = (EXIT_WRONG, EXIT_FAILED, EXIT_UNFINISHED)
    return next((code for code in worst_first if code in codes), EXIT_OK)
