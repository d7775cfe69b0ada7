"""Writes a reproducer's data, limits, scripts and README; exporters write the program.

The limits let a reproducer verify outputs without the suite. Their rules are those in
`verification.verify` and `generation_verification.verify_free_run`, evaluated here for a truth and
a reference, so that checking outputs needs only NumPy.
"""

import importlib.util
import json
import pprint
import shlex
import shutil
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import numpy.typing as npt
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from comparative_benchmark.analysis.verification.error_limits import MIN_SQNR, factor_of, groups_of
from comparative_benchmark.analysis.verification.generation_verification import limits_of
from comparative_benchmark.analysis.verification.verification import (
    is_constant,
    open_array,
    sum_length,
    verify,
)
from comparative_benchmark.analysis.verification.verification import limits_of as limits_of_output
from comparative_benchmark.api.recorded_trials import versions_of
from comparative_benchmark.backends.exported_programs import Exported
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import ArtifactSource, Host, ProgramSource, Status
from comparative_benchmark.results.results_file import plain
from openxla.benchmark.artifacts.workload_store import Due, WorkloadArtifacts
from openxla.benchmark.models.architectures.base import DATA_TYPES
from openxla.benchmark.models.model_interfaces import LOGITS
from openxla.benchmark.models.preprocessing import element_type_of
from openxla.benchmark.workloads import generated_tokens

Limits = dict[str, Any]
Array = npt.NDArray[Any]


def expected_limits(
    due: Due, parameters: Mapping[str, float], *, generates: bool, data_type: str | None
) -> Limits:
    """Returns the contents of `expected.json` for `check.py`, except the recorded measurement.

    Args:
      due: the input, the outputs of the float64 run and of the op-by-op run in the model's own
        type, and their neighbours.
      parameters: parameters of the verification.
      generates: whether the outputs are generated tokens and their logits.
      data_type: the model's data type, e.g. `bf16`.

    Returns:
      `outputs`, the limits of each output; `generation`, those for generated text; and `problem`,
      the reason if outputs cannot be verified, otherwise None.
    """
    expected: Limits = {"outputs": [], "generation": None, "problem": None}
    if generates:
        expected["outputs"] = [_type_of(open_array(path)) for path in due.reference]
        truth, reference = open_array(due.truth[LOGITS]), open_array(due.reference[LOGITS])
        generated = limits_of(truth, reference, parameters, data_type)
        if isinstance(generated, str):
            return expected | {"problem": generated}
        expected["generation"] = {
            "rmse": generated.rmse,
            "step_rmse": generated.step_rmse.tolist(),
            "largest_error": generated.element,
            "bias": generated.bias if np.isfinite(generated.bias) else None,
            "tolerance": _tolerance(parameters),
        }
        return expected
    for index in range(len(due.truth)):
        limits, problem = _output(index, due, parameters)
        expected["outputs"].append(limits)
        if problem:
            expected["problem"] = f"output {index}: {problem}"
    return expected


def _type_of(values: Array) -> Limits:
    """Returns the type of an output, and its largest number; None for integers."""
    inexact = values.dtype.kind not in "iub"
    largest = float(ml_dtypes.finfo(values.dtype).max) if inexact else None
    return {"dtype": values.dtype.name, "largest": largest}


def _output(index: int, due: Due, parameters: Mapping[str, float]) -> tuple[Limits, str | None]:
    """Returns the limits of an output, and the reason if they cannot be computed."""
    truth, same_type = open_array(due.truth[index]), open_array(due.reference[index])
    limits: Limits = {
        **_type_of(same_type),
        "exact": same_type.dtype.kind in "iub" or not same_type.size,
        "relative_rmse": None,
        "largest_error": None,
        "relative_element": 0.0,
        "bias": None,
        "tolerance": _tolerance(parameters),
        "groups": [],
    }
    if limits["exact"]:
        return limits, None
    shapes = [[open_array(path).shape for path in paths] for paths in (due.inputs, due.truth)]
    longest_sum, near = sum_length(*shapes), due.neighbours_by_output.get(index)
    # Judge the reference as a candidate to obtain its own error, and the largest allowed one.
    verdict = verify(
        [due.reference[index]],
        [due.truth[index]],
        [due.reference[index]],
        parameters,
        neighbours={0: near} if near else {},
        longest_sum=longest_sum,
    )
    limits["relative_rmse"] = verdict.allowed_relative_rmse
    if verdict.relative_rmse is None and not verdict.passed:
        return limits, verdict.reason
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(truth.astype(same_type.dtype)) & np.isfinite(same_type)
    neighbours = open_array(near)[:, finite] if near else None
    errors = limits_of_output(truth[finite], same_type[finite], parameters, longest_sum, neighbours)
    if isinstance(errors, str):
        return limits, errors
    limits["largest_error"] = errors.element
    limits["relative_element"] = errors.relative_element
    limits["bias"] = errors.bias if np.isfinite(errors.bias) else None
    if MIN_SQNR not in parameters and finite.all():
        limits["groups"] = _groups(truth, same_type, parameters, longest_sum)
    return limits, None


def _groups(
    truth: Array, reference: Array, parameters: Mapping[str, float], longest_sum: int
) -> list[Limits]:
    """Returns limits by position or magnitude of finite values."""
    if reference.dtype.kind == "c" or is_constant(truth):
        return []
    element_type = element_type_of(reference.dtype)
    limits = groups_of(reference, truth, reference, element_type, parameters, longest_sum)
    return [
        {
            name: value
            for name, value in attrs.asdict(group).items()
            if name in ("axis", "index", "least", "below", "limit") and value is not None
        }
        for group in limits
    ]


def _tolerance(parameters: Mapping[str, float]) -> list[float] | None:
    names = ("absolute_tolerance", "relative_tolerance")
    if not set(names) & set(parameters):
        return None
    return [parameters.get(name, 0.0) for name in names]


TEMPLATES = Path(__file__).parent / "templates"
_WIDTH = 88


@attrs.frozen(kw_only=True)
class Outcome:
    """Outcome of an export.

    Attributes:
      exported: the exported program; None if the export failed.
      versions: versions of the packages that the script needs, in the exporting environment.
      ended: why the export failed; None on success.
      task: arguments of `exported_programs.export` without inputs and directories; `environment`.
    """

    exported: Exported | None
    versions: Mapping[str, str]
    ended: SessionEnded | None
    task: Mapping[str, Any]

    @property
    def templates(self) -> Path:
        """The folder with the backend's template of `run.py`, next to its reproducer."""
        module, _, _ = self.task["reproducer"].partition(":")
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"the reproducer's module {module} is not installed")
        return Path(spec.origin).parent


def write_data(directory: Path, trial: Trial, artifacts: WorkloadArtifacts) -> None:
    """Copies inputs and expected outputs."""
    for folder, stem, paths in (
        ("inputs", "input", artifacts.inputs),
        ("expected", "truth", artifacts.truth),
        ("expected", "reference", artifacts.reference),
    ):
        (directory / folder).mkdir(exist_ok=True)
        for index, path in enumerate(paths):
            shutil.copyfile(path, directory / folder / f"{stem}_{index}.npy")
    for index, path in artifacts.first.neighbours_by_output.items():
        shutil.copyfile(path, directory / "expected" / f"neighbours_{index}.npy")
    limits = expected_limits(
        artifacts.first,
        trial.verify_parameters,
        generates=generated_tokens(trial.case) is not None,
        data_type=trial.workload.data_type,
    )
    _write_json(directory / "expected.json", limits)


def write_scripts(directory: Path, recorded: Case, outcome: Outcome) -> None:
    """Writes `run.py`, the modules that it imports, `commands.sh` and `requirements.txt`.

    If the export failed, only the export itself can be run.
    """
    _add_to_json(directory / "expected.json", recorded=summary(recorded))
    told = {"run": plain(recorded.run), "result": plain(recorded.result)}
    _write_json(directory / "result.json", told)
    _write_json(directory / "export.json", outcome.task)
    shutil.copyfile(TEMPLATES / "export.py.txt", directory / "export.py")
    exported = outcome.exported
    packages = _requirements(recorded, outcome)
    (directory / "requirements.txt").write_text("".join(packages), encoding="utf-8")
    if exported is None:
        if outcome.ended is not None:
            text = outcome.ended.traceback or outcome.ended.reason
            (directory / "traceback.txt").write_text(f"{text.rstrip()}\n", encoding="utf-8")
        return
    for name in ("check.py", *exported.modules):
        own = outcome.templates / f"{name}.txt"
        shared = TEMPLATES / f"{name}.txt"
        shutil.copyfile(own if own.exists() else shared, directory / name)
    settings = {name: _as_python(value) for name, value in exported.settings.items()}
    script = filled(outcome.templates / "run.py.txt", settings)
    (directory / "run.py").write_text(script, encoding="utf-8")
    if exported.commands:
        lines = list(shell_lines(exported))
        (directory / "commands.sh").write_text("\n".join(lines) + "\n", encoding="utf-8")


def summary(recorded: Case) -> str:
    """Returns a one-line summary of the recorded result."""
    if recorded.status is not Status.OK:
        return recorded.why
    median_ms = recorded.metrics.median_ms
    return "ok" if median_ms is None else f"ok, median {median_ms:.4g} ms"


def _requirements(recorded: Case, outcome: Outcome) -> list[str]:
    """Returns the lines of `requirements.txt`, with the measured versions if known."""
    names: Sequence[str] = list(recorded.result.versions)
    if outcome.exported is not None:
        names = outcome.exported.packages
    measured, lines = versions_of(recorded), []
    for name in names:
        version = version_in(measured, name) or outcome.versions.get(name)
        if version is None:
            lines.append(f"{_checked_name(name)}  # unknown version\n")
            continue
        parsed = _checked_version(name, version)
        # Indexes do not offer builds with local version labels.
        build = f"  # {parsed}" if parsed.local else ""
        lines.append(f"{_checked_name(name)}=={parsed.public}{build}\n")
    return lines


def _checked_name(name: str) -> str:
    """Returns the name of a package after validation, because a results file may be untrusted.

    Raises:
      UsageError: it is not a package name and could add a line to requirements.txt.
    """
    try:
        canonicalize_name(name, validate=True)
        return name
    except InvalidName:
        raise UsageError(f"the results file contains an invalid package name {name!r}") from None


def _checked_version(name: str, version: object) -> Version:
    try:
        return Version(str(version))
    except InvalidVersion:
        raise UsageError(
            f"the results file contains an invalid version for {name}: {version!r}"
        ) from None


def version_in(versions: Mapping[str, str], name: str) -> str | None:
    """Returns the version of a package, ignoring differences in the spelling of its name."""
    wanted = canonicalize_name(name)
    return next((v for k, v in versions.items() if canonicalize_name(k) == wanted), None)


def shell_lines(exported: Exported, *, heading: bool = True) -> Iterator[str]:
    """Yields the command lines of a program for a shell script."""
    if heading:
        yield "#!/bin/sh"
        yield "# Run in this directory."
    for command in exported.commands:
        source = "" if command.is_packaged else " Not installed by requirements.txt."
        yield f"# {command.comment}{source}"
        words = [shlex.quote(argument) for argument in command.arguments]
        yield " \\\n  ".join(words) if len(words) > 3 else " ".join(words)


def _as_python(value: Any) -> str:
    """Formats a setting for a script: strings unquoted, other values as literals."""
    if isinstance(value, str):
        return value
    return pprint.pformat(value, width=_WIDTH, sort_dicts=False)


def filled(template: Path, fields: Mapping[str, str]) -> str:
    """Returns a template with its fields filled in."""
    return string.Template(template.read_text(encoding="utf-8")).substitute(fields)


def _write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def _add_to_json(path: Path, **more: Any) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    _write_json(path, {**more, **document})


# Expected result of running the reproducer, by recorded status.
_DUE = {
    "ok": "Expect `PASS`, with a latency similar to the recorded one.",
    "unsteady": "Expect `PASS`; in the recorded run, the latency did not become steady.",
    "wrong_output": "Expect `FAIL`, as in the recorded run.",
    "crashed": "Expect a crash, as in the recorded run.",
    "timeout": "Expect a run at least as long as the recorded run.",
    "out_of_memory": "Expect the same memory use as in the recorded run.",
    "unsupported": "The suite rejected the case (see above); `run.py` runs it as far as possible.",
}


def write_readme(
    directory: Path, trial: Trial, recorded: Case, outcome: Outcome, *, check: str | None
) -> None:
    """Writes `README.md`.

    Args:
      directory: directory of the reproducer.
      trial: the reproduced trial.
      recorded: the recorded result.
      outcome: outcome of the export.
      check: output of `run.py` on this machine; None if it was not run.
    """
    result, exported = recorded.result, outcome.exported
    status, traceback = result.status.value, result.traceback
    fields = {
        "case": trial.case.name,
        "competitor": str(trial.competitor),
        "what": _what(outcome),
        "status": status,
        "phase": f" in `{result.phase}`" if result.phase else "",
        "reason": f"- reason: {result.reason}\n" if result.reason else "",
        "date": recorded.run.trigger.timestamp if recorded.run else "unknown date",
        "revision": f", suite at {recorded.revision}" if recorded.revision else "",
        "machine": _machine(recorded.host),
        "traceback": f"```\n{traceback.rstrip()}\n```\n\n" if traceback else "",
        "run": _run_text(status, exported, check) if exported else "",
        "files": "\n".join(f"- `{name}`: {text}" for name, text in _files(directory, outcome)),
        "versions": _versions_table(recorded, outcome),
        "rule": _rule(trial),
        "notes": "\n".join(f"- {note}" for note in _notes(trial, recorded, outcome)),
    }
    text = filled(TEMPLATES / "readme.md.txt", fields)
    (directory / "README.md").write_text(text, encoding="utf-8")


def _what(outcome: Outcome) -> str:
    if outcome.exported is not None:
        return (
            "One case of the Common Benchmark Suite as a standalone program, with weights, inputs "
            "and expected outputs."
        )
    ended = outcome.ended
    how = "" if ended is None else f" ({ended.status.value} in `{ended.phase}`)"
    return (
        f"The program for this case cannot be exported{how}, so there is nothing to compile. "
        "`traceback.txt` shows where the export fails, and `export.py` repeats the export."
    )


def _files(directory: Path, outcome: Outcome) -> Iterator[tuple[str, str]]:
    exported = outcome.exported
    described = {
        **({} if exported is None else exported.files),
        "inputs": "input_0.npy etc., one file per argument; bfloat16 elements take two bytes",
        "expected": "truth_N.npy, reference_N.npy and perhaps neighbours_N.npy for each output",
        "expected.json": "error limits (see Correctness)",
        "run.py": "compiles, runs, checks and times the program",
        "check.py": "reads arrays and checks outputs; requires only NumPy",
        "commands.sh": "the same steps as shell commands",
        "requirements.txt": "package versions of the measurement if known, otherwise of the export",
        "result.json": "the recorded result and a description of the machine",
        "traceback.txt": "traceback of the failed export",
        "export.py": "repeats the export with export.json; requires the suite and the framework",
    }
    for name, text in described.items():
        if (directory / name).exists():
            yield name, text


def _versions_table(recorded: Case, outcome: Outcome) -> str:
    names = list(outcome.exported.packages) if outcome.exported else []
    measured = versions_of(recorded)
    rows = ["| package | measured | exported with |", "|---|---|---|"]
    for name in dict.fromkeys([*names, *recorded.result.versions]):
        version = version_in(measured, name) or "?"
        rows.append(f"| {name} | {version} | {outcome.versions.get(name, '')} |")
    return "\n".join(rows)


def _machine(host: Host | None) -> str:
    if host is None:
        return "unknown"
    facts = (
        host.cpu_model,
        host.architecture,
        f"{host.logical_cpus or '?'} logical CPUs",
        f"threads: {host.threads}",
        f"{host.memory_bytes / 2**30:.0f} GiB" if host.memory_bytes else None,
        f"governor {host.governor}" if host.governor else None,
        host.system,
        f"Python {host.python}" if host.python else None,
    )
    return ", ".join(str(fact) for fact in facts if fact)


def _commands_text(exported: Exported) -> str:
    if not exported.commands:
        return ""
    lines = "\n".join(shell_lines(exported, heading=False))
    return f"\nAs shell commands (`commands.sh`):\n\n```\n{lines}\n```\n"


def _rule(trial: Trial) -> str:
    parameters = trial.verify_parameters
    if MIN_SQNR in parameters:
        return f"The limits correspond to a signal-to-noise ratio of {parameters[MIN_SQNR]:g} dB."
    data_type = str(trial.case.model.model_parameters.get("data_type"))
    element_type = DATA_TYPES.get(data_type, "f32")
    text = (
        f"The limits are {factor_of(element_type, parameters):g} times the reference's error, and "
        "slightly higher for small outputs."
    )
    if generated_tokens(trial.case) is not None:
        text += " Generated text is checked step by step, up to the first token that differs."
    return text


def _notes(trial: Trial, recorded: Case, outcome: Outcome) -> Iterator[str]:
    case, exported = trial.case, outcome.exported
    module = case.model.model_impl.module_path
    yield f"The model is `create_model(**{dict(case.model.model_parameters)!r})` from `{module}`."
    metrics = recorded.metrics
    if source := metrics.artifact_source:
        yield f"Measured with the published artifacts from {_publication(source)}."
    if program := metrics.program_source:
        kinds = ", ".join(program.types)
        yield (
            f"The measured program ({kinds}) was published at {_publication(program)}; this "
            "reproducer exports the model again."
        )
    if exported is None:
        return
    yield from exported.notes
    recorded_sha256 = metrics.program.artifact_sha256
    if recorded_sha256 and exported.program_sha256:
        same = "identical to" if recorded_sha256 == exported.program_sha256 else "different from"
        yield f"The program is {same} the measured program (sha256 {recorded_sha256})."
    elif recorded_sha256:
        yield f"The measured program has the sha256 {recorded_sha256}."
    versions = versions_of(recorded)
    for name in exported.packages:
        measured = version_in(versions, name)
        here = outcome.versions.get(name)
        if measured and here and measured != here:
            yield f"Exported with {name} {here}, but measured with {measured}."


def _publication(source: ArtifactSource | ProgramSource) -> str:
    return f"{source.url} (manifest sha256 {source.manifest_sha256})"


def _run_text(status: str, exported: Exported, check: str | None) -> str:
    """Returns the section about running the program."""
    due = _DUE.get(status, "Expect the recorded outcome.")
    fields = {"due": due, "commands": _commands_text(exported)}
    text = filled(TEMPLATES / "readme_run.md.txt", fields)
    if check:
        text += f"Output of a run on the exporting machine:\n\n```\n{check}\n```\n\n"
    return text
