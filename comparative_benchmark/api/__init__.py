"""The suite's Python API; `import comparative_benchmark` provides the same names."""

import datetime
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from comparative_benchmark.analysis.stats.analysis import NOISE_THRESHOLD
from comparative_benchmark.api import live_models
from comparative_benchmark.api.measuring import PlannedRun, measure, plan_run
from comparative_benchmark.api.progress import Progress, Reporter
from comparative_benchmark.api.results import Comparisons, Results
from comparative_benchmark.engine.runner import execution_environment
from comparative_benchmark.errors import UsageError
from comparative_benchmark.request import RunRequest, command_line, options
from comparative_benchmark.results.comparing.compare import compare_documents
from comparative_benchmark.results.record import Document, Trigger
from comparative_benchmark.results.results_file import ResultsFileError, read_document
from comparative_benchmark.terminal.listing import list_backends, list_cases
from openxla.benchmark.user_models import is_model

__all__ = [
    "Comparisons",
    "Progress",
    "Results",
    "ResultsFileError",
    "RunRequest",
    "UsageError",
    "compare",
    "list_backends",
    "list_cases",
    "load",
    "run",
]

StrPath = str | os.PathLike[str]


def run(  # noqa: D417 - RunRequest describes the options
    model_or_path: object = None,
    inputs: object = None,
    *,
    name: str | None = None,
    backends: str | Sequence[str] = (),
    device: str = "host-cpu",
    output: StrPath | None = None,
    progress: Callable[[Progress], object] | None = None,
    test: Literal["eval", "train"] = "eval",
    tag: str | Sequence[str] = (),
    framework: str | Sequence[str] | None = None,
    suite: str | Sequence[str] = (),
    suite_dir: StrPath | Sequence[StrPath] = (),
    input: str | Sequence[str] = (),  # noqa: A002 - the name of the option
    dtype: str | Sequence[str] = (),
    batch: int | str | Sequence[int] = (),
    seq_len: int | str | Sequence[int] = (),
    task: str | None = None,
    base: StrPath | None = None,
    text: StrPath | None = None,
    image: StrPath | None = None,
    allow_code: bool = False,
    save_as: StrPath | None = None,
    torchbench: StrPath | Sequence[StrPath] = (),
    batch_size: int | None = None,
    auto_batch: bool = False,
    install: bool = False,
    warmup_iterations: int | None = None,
    iterations: int | None = None,
    run_in_process: bool = False,
    share_workers: bool = False,
    inherit_environment: bool = False,
    outputs: Literal["bound", "allocated"] | None = None,
    exported_programs: bool = False,
    threads: int | None = None,
    profile: bool = False,
    dry_run: bool = False,
    json: bool = False,
    quick: bool = False,
    baseline: str | None = None,
    precision: float = 0.01,
    effect: float = 0.03,
    processes: int | None = None,
    compile_only: bool = False,
    busy: bool = False,
    cpus: str | Sequence[int] = (),
    env: str | Mapping[str, StrPath] | None = None,
    seed: int | None = None,
    resume: bool = False,
    root_dir: StrPath | None = None,
    generate_artifacts: bool = False,
    no_download: bool = False,
    expected_failures: StrPath | None = None,
    verbose: bool = False,
    timeout: float = 3600.0,
    deadline: str | Sequence[str] | Mapping[str, float] = (),
    memory_limit: int | str | None = None,
    trial_budget: float = 30.0,
    budget: float | None = None,
) -> Results:
    """Measures cases and returns their results, including earlier results in the file.

    Workers are separate processes, as on the command line. Ctrl-C ends them, keeps finished results
    in the file, and raises KeyboardInterrupt.

    The other arguments are the options of `cbs run`; `RunRequest` describes each. A sequence
    repeats an option. `dry_run` checks the arguments, reports the trials to `progress`, and runs
    none. `json`, `busy`, `verbose` and `expected_failures` change only the output and the exit code
    of the command line.

    Args:
      model_or_path: your own model: a `torch.nn.Module`, a JAX function or a Keras model of this
        process, `path/to/file.py:callable`, `package.module:callable`, a Hugging Face directory or
        an exported program; or a name, as below.
      inputs: example inputs of a live model: a tuple of arguments, a dict of keyword arguments or
        one array. For other models, a folder with `input_0.npy`, `input_1.npy` ...
      name: regular expression that matches the full name of a case, or part of a name.
      backends: e.g. `jax_xla,pt_inductor:inductor+freezing`, or a sequence of such names; by
        default all installed backends, for TorchBench folders `pt_inductor:eager`.
      device: name of a device.
      output: results file to append to; by default a new file in a temporary folder.
      progress: called with each event. In a notebook, events are printed by default; use
        `progress=lambda _: None` to disable this.

    Raises:
      UsageError: an argument is invalid, or two of them exclude each other.
      DefinitionError, NoMatchError: a definition is invalid, or no case has such a name.
    """
    given = {key: value for key, value in locals().items() if key in options()}
    observer = Reporter(progress)
    given["output"] = Path(output or Path(tempfile.mkdtemp(prefix="cbs-"), "results.json"))
    given |= _subject(model_or_path, inputs, name, given["output"], observer)
    return _measured(RunRequest(**given), observer)


def _subject(
    model_or_path: object, inputs: object, name: str | None, output: Path, observer: Reporter
) -> dict[str, Any]:
    """Returns the fields of a request that select its cases; exports a live model.

    Raises:
      UsageError: arguments exclude each other, or the model cannot be exported.
    """
    if model_or_path is not None and not isinstance(model_or_path, str | os.PathLike):
        live = live_models.export(model_or_path, inputs, output.with_suffix(".models"))
        observer.say(f"exported: {live.path}")
        return {"model": str(live.path), "inputs": live.inputs}
    if not isinstance(inputs, str | os.PathLike | None):
        raise UsageError(
            "inputs: arrays are supported only for live models; pass a folder with input_0.npy "
            "..., or describe the inputs with input="
        )
    if model_or_path is None:
        return {"model": name, "name": None} if name is not None and is_model(name) else {}
    subject = str(model_or_path)
    if is_model(subject) or not isinstance(model_or_path, str):
        return {"model": subject}
    if name is not None:
        raise UsageError(f"{subject!r} and name={name!r} both select cases; omit one")
    return {"name": subject}


def _measured(request: RunRequest, observer: Reporter) -> Results:
    command = ["comparative_benchmark.engine", *command_line(request)]
    if request.dry_run:
        return _planned(plan_run(request, observer.say), observer, command)
    measured = measure(request, observer, command=command)
    return Results(read_document(request.output), path=request.output, baseline=measured.baseline)


def _planned(planned: PlannedRun, observer: Reporter, command: Sequence[str]) -> Results:
    """Reports the trials of a run and returns no results."""
    for trial in planned.trials:
        observer.say(f"would run: {trial}")
    now = datetime.datetime.now(datetime.UTC)
    document = Document(
        schema_version=1,
        trigger=Trigger(timestamp=now.isoformat(timespec="seconds"), command=tuple(command)),
        execution_environment=execution_environment(planned.trials, planned.settings),
        runs=(),
        benchmarks=(),
    )
    return Results(document, baseline=planned.baseline)


def load(path: str | os.PathLike[str]) -> Results:
    """Loads the results of a file.

    Raises:
      ResultsFileError: the file is not a valid results file; the message gives the error and its
        location.
    """
    return Results(read_document(Path(path)), path=Path(path))


def compare(
    old: Results, new: Results, *, threshold: float = NOISE_THRESHOLD, count_unchanged: bool = False
) -> Comparisons:
    """Compares new results with old ones, for every case of either side, as `cbs compare` does.

    Args:
      old: the baseline.
      new: the candidate.
      threshold: smaller differences count as noise.
      count_unchanged: whether unchanged programs may count as faster or slower.
    """
    found = compare_documents(
        old.document, new.document, threshold=threshold, count_unchanged=count_unchanged
    )
    return Comparisons(found)
