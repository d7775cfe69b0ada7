"""`RunRequest`, the typed description of a run: the options of `cbs run`, each declared once."""

import argparse
import datetime
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.errors import UsageError
from openxla.benchmark.text import did_you_mean

# Model modes, with their names in TorchBench.
EVAL, TRAIN = "eval", "train"
# Option groups in the help.
SELECTION, OWN_MODEL, FOLDERS = "selection", "your own model", "TorchBench folders"
MEASUREMENT, FILES, LIMITS = "measurement", "files", "limits"

# Defaults for fixed counts if only one of the two is given.
WARMUP_ITERATIONS, ITERATIONS = 5, 100

_METADATA = "option"
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@attrs.frozen(kw_only=True)
class Option:
    """The command-line form of a `RunRequest` field.

    Attributes:
      group: heading in the help.
      help: help text.
      flags: spellings with dashes; by default the field's name.
      positional: whether the argument has no flag.
      parse: reads one value from text. Raises `ArgumentTypeError` or `ValueError`.
      metavar: placeholder for the value in the help; None for the field's name.
      choices: allowed values; empty for any.
      repeated: whether the option can be repeated, for a tuple of values.
      joined: whether `parse` reads several values from one text, separated by commas.
      dest: attribute of the parsed command line; None for the field's name.
    """

    group: str
    help: str
    flags: tuple[str, ...]
    positional: bool = False
    parse: Callable[[str], Any] = str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    repeated: bool = False
    joined: bool = False
    dest: str | None = None


def options() -> dict[str, tuple["attrs.Attribute[Any]", Option]]:
    """Returns each field of `RunRequest` with its option, by name, in help order."""
    return {field.name: (field, field.metadata[_METADATA]) for field in attrs.fields(RunRequest)}


def default_of(field: "attrs.Attribute[Any]") -> Any:
    """Returns the default value of a field."""
    factory = getattr(field.default, "factory", None)
    return factory() if factory else field.default


def command_line(request: "RunRequest", without: Collection[str] = ()) -> list[str]:
    """Returns a request as arguments for `cbs run`, without default values.

    Args:
      request: the request.
      without: names of fields to leave out.
    """
    words: list[str] = []
    for name, (field, option) in options().items():
        value = getattr(request, name)
        if name in without or value == default_of(field):
            continue
        if option.positional:
            words.insert(0, str(value))
        elif option.repeated:
            words += [word for item in value for word in (option.flags[0], _text(item))]
        elif isinstance(value, bool):
            words.append(option.flags[0])
        else:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [option.flags[0], text]
    return words


def count(minimum: int) -> Callable[[str], int]:
    """Returns a parser for whole numbers of at least `minimum`."""

    def parse(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"expected at least {minimum}, got {text}")
        return value

    parse.__name__ = "number"
    return parse


def seconds(text: str) -> float:
    """Parses a number of seconds above 0."""
    return _number_below(1e9, text, "a positive number of seconds")


def fraction(text: str) -> float:
    """Parses a number between 0 and 1, exclusive."""
    return _number_below(1.0, text, "a number between 0 and 1")


def _number_below(limit: float, text: str, expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < limit:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return value


def cpu_list(text: str) -> tuple[int, ...]:
    """Parses a CPU list in the notation of the kernel and taskset: `0,2-3`."""
    cpus: set[int] = set()
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        is_range = first.isdecimal() and (last.isdecimal() or not dash)
        if not is_range or not int(first) <= int(last or first) < 2**16:
            raise argparse.ArgumentTypeError(f"expected a list of CPUs such as 0,2-3, got {text!r}")
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def phase_deadline(text: str) -> tuple[str, float]:
    """Parses a deadline such as `compile=600` into a phase and seconds."""
    from comparative_benchmark.engine.worker.phases import PHASES, SESSION_PHASES

    phase, separator, limit = text.partition("=")
    if not separator or not phase:
        raise argparse.ArgumentTypeError(f"expected PHASE=SECONDS, got {text!r}")
    if phase not in (*PHASES, *SESSION_PHASES):
        known = ", ".join((*PHASES, *SESSION_PHASES))
        raise argparse.ArgumentTypeError(f"unknown phase {phase!r}; choices are {known}")
    return phase, seconds(limit)


def size(text: str) -> int:
    """Parses a size such as `8G` into bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"expected a size such as 8G, got {text!r}")
    size_bytes = int(float(match[1]) * _SIZES[match[2].upper()])
    if not size_bytes:
        raise argparse.ArgumentTypeError(f"expected a size above 0, got {text!r}")
    return size_bytes


def frameworks(text: str) -> str:
    """Parses frameworks such as `pt,jax` or `pytorch,jax` into comma-separated names."""
    from openxla.benchmark import synonyms
    from openxla.benchmark.def_types import ModelFrameworkType

    names = [synonyms.framework(name.strip()) for name in text.split(",") if name.strip()]
    known = [item.value for item in ModelFrameworkType]
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(
            f"unknown framework {', '.join(unknown)}; choices are pytorch, jax, tensorflow, "
            "tflite, onnx and stablehlo"
        )
    return ",".join(names)


def new_results_file() -> Path:
    """Returns the default results file for a run: a new file for each start."""
    return Path("results", f"{datetime.datetime.now().astimezone():%Y-%m-%d-%H%M%S}.json")


def _folder(text: str) -> str:
    """Returns the absolute path of a folder, to distinguish it from the dotted path of a module."""
    return str(Path(text).expanduser().absolute())


def _numbers(text: str) -> tuple[int, ...]:
    parse = count(1)
    return tuple(dict.fromkeys(parse(part) for part in text.split(",")))


def _converted(value: Any, field: "attrs.Attribute[Any]") -> Any:
    """Returns a value of the field's type, with the checks of the command line.

    Raises:
      UsageError: the value is invalid.
    """
    option: Option = field.metadata[_METADATA]
    if value is None or (option.repeated and not value):
        return default_of(field)
    if isinstance(field.default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"{field.name}: expected True or False, got {value!r}")
        return value
    if option.repeated:
        return tuple(_parsed(_text(item), field.name, option) for item in _items(value))
    if option.joined:
        value = ",".join(map(_text, _items(value)))
        return _parsed(value, field.name, option) if value else default_of(field)
    return _parsed(_text(value), field.name, option)


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.items()
    return value if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def _text(value: Any) -> str:
    """Formats a value as on the command line; a pair becomes `NAME=VALUE`."""
    return "=".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _parsed(text: str, name: str, option: Option) -> Any:
    try:
        value = option.parse(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{name}: {error}") from error
    except ValueError as error:
        kind = getattr(option.parse, "__name__", "").lstrip("_")
        raise UsageError(f"{name}: invalid {kind} value: {text!r}") from error
    if option.choices and value not in option.choices:
        near = did_you_mean(text, option.choices) or f"; choices are {', '.join(option.choices)}"
        raise UsageError(f"unknown {name} {text!r}{near}")
    return value


def _option(group: str, *flags: str, text: str, default: Any = None, **others: Any) -> Any:
    if others.get("repeated"):
        default = ()
    return attrs.field(
        default=default,
        converter=attrs.Converter(_converted, takes_field=True),
        metadata={_METADATA: Option(group=group, flags=flags, help=text, **others)},
    )


# The usual kinds of options: true or false, a path, values separated by commas, a time limit.
_switch = partial(_option, default=False)
_path = partial(_option, parse=Path)
_list = partial(_option, default=(), joined=True)
_time_limit = partial(_option, LIMITS, parse=seconds, metavar="S")


def _with_flags(_: type, fields: "list[attrs.Attribute[Any]]") -> "list[attrs.Attribute[Any]]":
    """Derives missing option flags from field names."""
    named = []
    for field in fields:
        option: Option = field.metadata[_METADATA]
        if not option.flags and not option.positional:
            option = attrs.evolve(option, flags=(f"--{field.name.replace('_', '-')}",))
        named.append(field.evolve(metadata={_METADATA: option}))
    return named


@attrs.frozen(kw_only=True, field_transformer=_with_flags)
class RunRequest:
    """The description of a run: one field for each option of `cbs run`.

    Values are checked as on the command line. Each field also accepts the text that you would type
    there: `batch="1,8"`, `memory_limit="8G"`. None selects the default.

    Raises:
      UsageError: a value is invalid.
    """

    name: str | None = _option(
        SELECTION,
        *("-name", "--benchmark-name"),
        text="regular expression that matches a whole case name, or a plain substring of the name",
    )
    test: str = _option(
        SELECTION,
        *("-t", "--test"),
        default=EVAL,
        choices=(EVAL, TRAIN),
        text="mode: eval computes outputs, train takes training steps (default: eval)",
    )
    tag: tuple[str, ...] = _option(
        SELECTION, repeated=True, text="tag that cases must have; may be repeated"
    )
    framework: str | None = _option(
        SELECTION,
        parse=frameworks,
        joined=True,
        text="frameworks of the models, e.g. pytorch,jax or pt,jax,tf (default: all)",
    )
    suite_dir: tuple[str, ...] = _option(
        SELECTION,
        repeated=True,
        dest="suite",
        parse=_folder,
        metavar="DIR",
        text="directory with *_definitions.py files to use instead of the suite's cases; may be "
        "repeated. `cbs run MODEL --save-as DIR` writes such a directory",
    )
    suite: tuple[str, ...] = _option(
        SELECTION,
        repeated=True,
        metavar="MODULE",
        text="additional module that defines ALL_BENCHMARKS; may be repeated. For a module in the "
        "current directory, set PYTHONPATH=.",
    )
    inputs: Path | None = _path(
        SELECTION,
        metavar="DIR",
        text="directory with inputs for the selected models: input_0.npy, input_1.npy ...",
    )
    backends: tuple[str, ...] = _list(
        SELECTION,
        "--backend",
        dest="backend",
        parse=lambda text: tuple(text.split(",")),
        text="backends, e.g. jax_xla,pt_inductor:inductor+freezing,iree (default: `all`, which "
        "selects every installed backend; with --torchbench, pt_inductor:eager)",
    )
    device: str = _option(
        SELECTION,
        *("-device", "--target-device"),
        default="host-cpu",
        text="device to run on (default: host-cpu)",
    )
    model: str | None = _option(
        OWN_MODEL,
        positional=True,
        metavar="MODEL",
        text="model to use instead of -name: PATH.py, PATH.py:CALLABLE, PACKAGE.MODULE:CALLABLE, a "
        "Hugging Face directory, hub:OWNER/NAME@REVISION, an exported program (.onnx, .mlir, .pt2, "
        "TorchScript, .keras, .h5, .tflite, .jax_export, a SavedModel) or a directory of programs",
    )
    input: tuple[str, ...] = _option(
        OWN_MODEL,
        repeated=True,
        metavar="SPEC",
        text="model input, e.g. 'f32[1,3,224,224]', 'i32[batch,seq]<1000' or 'i32[4,32]=1'; repeat "
        "the option for each argument. For a Hugging Face directory, add the argument's name: "
        "'bbox=i32[1,128,4]<1000' (default: example_inputs() in the file, or the program's "
        "signature)",
    )
    dtype: tuple[str, ...] = _list(
        OWN_MODEL,
        parse=lambda text: tuple(dict.fromkeys(filter(None, text.split(",")))),
        metavar="TYPE,...",
        text="data types, e.g. fp32,bf16",
    )
    batch: tuple[int, ...] = _list(
        OWN_MODEL, parse=_numbers, metavar="N,...", text="batch sizes, e.g. 1,8"
    )
    seq_len: tuple[int, ...] = _list(
        OWN_MODEL, parse=_numbers, metavar="N,...", text="sequence lengths, e.g. 128,512"
    )
    task: str | None = _option(
        OWN_MODEL, text="task for a Hugging Face directory, e.g. text-classification"
    )
    base: Path | None = _path(
        OWN_MODEL,
        metavar="DIR",
        text="directory of a LoRA adapter's base model (default: the path in the adapter's "
        "configuration)",
    )
    text: Path | None = _path(
        OWN_MODEL,
        metavar="FILE",
        text="text file to use as the input for a Hugging Face directory with a tokenizer",
    )
    image: Path | None = _path(
        OWN_MODEL,
        metavar="FILE",
        text="image file to use as the input for a Hugging Face directory with an image processor",
    )
    allow_code: bool = _switch(
        OWN_MODEL,
        *("--allow-code", "--allow-pickle"),
        text="load pickled weights, and .pt2, TorchScript and Keras files that contain code",
    )
    save_as: Path | None = _path(
        OWN_MODEL,
        metavar="DIR",
        text="directory to write case definitions to; run the cases again with --suite-dir DIR",
    )
    torchbench: tuple[Path, ...] = _path(
        FOLDERS,
        repeated=True,
        metavar="PATH",
        text="TorchBench model folder, or a directory of model folders; may be repeated. -name "
        "then selects folders",
    )
    batch_size: int | None = _option(
        FOLDERS, parse=count(1), text="batch size for TorchBench models (default: each model's own)"
    )
    auto_batch: bool = _switch(
        FOLDERS,
        text="use the largest power-of-two batch size at which the model and its float64 run stay "
        "within --memory-limit and --timeout",
    )
    install: bool = _switch(
        FOLDERS, text="first run each folder's install.py in a separate environment"
    )
    warmup_iterations: int | None = _option(
        MEASUREMENT,
        *("-w", "--warmup-iterations"),
        parse=count(0),
        text="fixed number of warm-up iterations (default with -iter: 5)",
    )
    iterations: int | None = _option(
        MEASUREMENT,
        *("-iter", "--iterations"),
        parse=count(1),
        text="fixed number of measured iterations in one process (default with -w: 100)",
    )
    run_in_process: bool = _switch(
        MEASUREMENT,
        text="run models in the `cbs` process; use this for debugging, not for measurements",
    )
    share_workers: bool = _switch(
        MEASUREMENT,
        text="reuse each competitor's processes for all cases: faster than starting new processes "
        "for each case, but cases can affect each other",
    )
    inherit_environment: bool = _switch(
        MEASUREMENT,
        text="pass all environment variables to workers (default: only variables that programs "
        "need, and variables that affect speed or numerics, which are recorded)",
    )
    outputs: str | None = _option(
        MEASUREMENT,
        choices=("bound", "allocated"),
        text="write the outputs of each iteration to the same memory (bound), or to new memory "
        "that is allocated in the timed region (allocated); stacks that cannot do this are "
        "`unsupported` (default: each stack's usual behaviour, which is recorded)",
    )
    exported_programs: bool = _switch(
        MEASUREMENT,
        text="run compiler-level backends on locked exported programs; compile time then excludes "
        "tracing and lowering",
    )
    threads: int | None = _option(
        MEASUREMENT,
        parse=count(1),
        text="number of threads for each backend (default: physical cores)",
    )
    profile: bool = _switch(
        MEASUREMENT, text="run the stack's profiler after each trial, and save the traces"
    )
    dry_run: bool = _switch(
        MEASUREMENT, text="check all options, print the trials that would run, and exit"
    )
    json: bool = _switch(MEASUREMENT, text="print results, verdicts and the recommendation as JSON")
    quick: bool = _switch(
        MEASUREMENT,
        text="run each competitor once with 20 iterations, for a first look without verdicts",
    )
    baseline: str | None = _option(
        MEASUREMENT,
        text="competitor to compute ratios against (default: pt_inductor:eager if it "
        "can run a selected case, otherwise the first competitor that can)",
    )
    precision: float = _option(
        MEASUREMENT,
        default=0.01,
        parse=fraction,
        text="target relative half-width of the 95 % interval (default: 0.01)",
    )
    effect: float = _option(
        MEASUREMENT,
        default=0.03,
        parse=fraction,
        text="relative difference to detect with 90 % probability (default: 0.03)",
    )
    processes: int | None = _option(
        MEASUREMENT,
        parse=count(1),
        text="number of fresh processes for each trial (default: 3 to 10, depending on the spread; "
        "with --compile-only, 6 pairs)",
    )
    compile_only: bool = _switch(
        MEASUREMENT,
        text="alternate cold and warm compilations and verify outputs, without measuring latency",
    )
    busy: bool = _switch(
        MEASUREMENT,
        text="start immediately even if other processes use the machine, without offering to wait",
    )
    cpus: tuple[int, ...] = _list(
        MEASUREMENT, parse=cpu_list, metavar="LIST", text="pin workers to these CPUs, e.g. 0,2-3"
    )
    env: str | None = _option(
        MEASUREMENT,
        joined=True,
        metavar="NAME=PATH,...",
        text="Python environments to run each competitor in, e.g. old=venv-1,new=venv-2",
    )
    seed: int | None = _option(
        MEASUREMENT,
        parse=count(0),
        text="seed for the order of process starts and blocks (default: random)",
    )
    output: Path = _path(
        FILES,
        *("-o", "--output"),
        default=attrs.Factory(new_results_file),
        text="results file to write, or to add results to (default: results/DATE-TIME.json)",
    )
    resume: bool = _switch(
        FILES, text="skip trials that are `ok` in the results file, and continue interrupted trials"
    )
    root_dir: Path | None = _path(
        FILES,
        text="directory for checkpoints and artifacts (default: $CBS_ROOT_DIR, or artifacts/root "
        "in the checkout)",
    )
    generate_artifacts: bool = _switch(FILES, text="regenerate inputs and expected outputs")
    no_download: bool = _switch(FILES, text="use only artifacts that are already in --root-dir")
    expected_failures: Path | None = _path(
        FILES,
        metavar="FILE",
        text="file that lists known failures, used instead of the checked-in file",
    )
    verbose: bool = _switch(FILES, text="print phases, log paths and tracebacks")
    timeout: float = _time_limit(
        default=3600.0, text="time limit in seconds for a worker (default: 3600)"
    )
    deadline: tuple[tuple[str, float], ...] = _option(
        LIMITS,
        repeated=True,
        parse=phase_deadline,
        metavar="PHASE=S",
        text="time limit in seconds for a phase, e.g. compile=600; may be repeated",
    )
    memory_limit: int | None = _option(
        LIMITS,
        parse=size,
        metavar="SIZE",
        text="memory limit for a worker, e.g. 8G (default: available memory minus 1G)",
    )
    trial_budget: float = _time_limit(
        default=30.0,
        text="time limit in seconds for a trial, enforced after 3 processes (default: 30)",
    )
    budget: float | None = _time_limit(
        text="time limit in seconds for the whole run, divided evenly among its trials (default: "
        "no limit). Workloads that do not fit are skipped, with exit code 4; --resume runs them"
    )

    @property
    def suites(self) -> tuple[str, ...]:
        """Modules that define cases, and absolute paths of directories that do."""
        return (*self.suite_dir, *self.suite)
