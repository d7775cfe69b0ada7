"""Writes the page of a reproducer: how it was recorded, how it is run, what is in it."""

from collections.abc import Iterator
from pathlib import Path

from comparative_benchmark.api.recorded_trials import versions_of
from comparative_benchmark.backends.reproducing import Exported
from comparative_benchmark.judge.error_limits import factor_of
from comparative_benchmark.judge.quantized_verification import MIN_SQNR
from comparative_benchmark.repro.writing import (
    TEMPLATES,
    Outcome,
    filled,
    shell_lines,
    version_in,
)
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import ArtifactSource, Host, ProgramSource
from comparative_benchmark.runs.trial import Trial
from openxla.benchmark.models.architectures.base import DATA_TYPES
from openxla.benchmark.workloads import generated_tokens

# What a status says of running the reproducer.
_DUE = {
    "ok": "It is due to pass, in a time like the recorded one.",
    "unsteady": "It is due to pass; what was recorded is that its times do not settle.",
    "wrong_output": "It is due to fail as recorded.",
    "crashed": "It is due to crash as recorded.",
    "timeout": "It is due to take as long as recorded, or longer.",
    "out_of_memory": "It is due to need as much memory as recorded.",
    "unsupported": "The suite refused it for the reason above; here it goes as far as it can.",
}


def write(
    directory: Path, trial: Trial, recorded: Case, outcome: Outcome, *, check: str | None
) -> None:
    """Writes `README.md`.

    Args:
      directory: the reproducer's.
      trial: what is reproduced.
      recorded: how it was measured.
      outcome: of the export.
      check: what `run.py` has given here; None if it was not run.
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
        "date": recorded.run.trigger.timestamp if recorded.run else "at an unknown time",
        "revision": f", suite at {recorded.revision}" if recorded.revision else "",
        "machine": _machine(recorded.host),
        "traceback": f"```\n{traceback.rstrip()}\n```\n\n" if traceback else "",
        "due": _DUE.get(status, "It is due to end as recorded."),
        "commands": _commands_text(exported),
        "check": f"Run once where it was made:\n\n```\n{check}\n```\n\n" if check else "",
        "files": "\n".join(f"- `{name}`: {text}" for name, text in _files(directory, outcome)),
        "versions": _versions_table(recorded, outcome),
        "rule": _rule(trial),
        "notes": "\n".join(f"- {note}" for note in _notes(trial, recorded, outcome)),
    }
    text = filled(TEMPLATES / "readme.md.txt", fields)
    if exported is None:
        text = _without_run(text)
    (directory / "README.md").write_text(text, encoding="utf-8")


def _what(outcome: Outcome) -> str:
    if outcome.exported is not None:
        return (
            "One case of the Common Benchmark Suite as a program that runs without it: what is "
            "compiled, weights, inputs and expected outputs."
        )
    ended = outcome.ended
    how = "" if ended is None else f" ({ended.status.value} in `{ended.phase}`)"
    return (
        f"The program of this case cannot be exported{how}: there is nothing to compile. "
        "`traceback.txt` says where the export ends, `export.py` repeats it."
    )


def _files(directory: Path, outcome: Outcome) -> Iterator[tuple[str, str]]:
    exported = outcome.exported
    described = {
        **({} if exported is None else exported.files),
        "inputs": "input_0.npy and so on, one for each argument; bfloat16 as two bytes an element",
        "expected": "truth_N.npy and reference_N.npy of each output",
        "expected.json": "the limits, see below",
        "run.py": "compiles, runs, judges, times",
        "check.py": "reads arrays and judges; NumPy alone",
        "commands.sh": "the same by command lines",
        "requirements.txt": "versions that were measured",
        "result.json": "the result as recorded, and what is known of the machine",
        "traceback.txt": "of the export, here",
        "export.py": "exports again, by export.json; needs the suite and the framework",
    }
    for name, text in described.items():
        if (directory / name).exists():
            yield name, text


def _versions_table(recorded: Case, outcome: Outcome) -> str:
    names = list(outcome.exported.packages) if outcome.exported else []
    measured = versions_of(recorded)
    rows = ["| package | measured | exported by |", "|---|---|---|"]
    for name in dict.fromkeys([*names, *recorded.result.versions]):
        version = version_in(measured, name) or "?"
        rows.append(f"| {name} | {version} | {outcome.versions.get(name, '')} |")
    return "\n".join(rows)


def _machine(host: Host | None) -> str:
    if host is None:
        return "not known"
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


def _commands_text(exported: Exported | None) -> str:
    if exported is None or not exported.commands:
        return ""
    lines = "\n".join(shell_lines(exported, heading=False))
    return f"\nBy command lines (`commands.sh`):\n\n```\n{lines}\n```\n"


def _rule(trial: Trial) -> str:
    parameters = trial.verify_parameters
    if MIN_SQNR in parameters:
        return f"They are those of a signal-to-noise ratio of {parameters[MIN_SQNR]:g} dB."
    data_type = str(trial.case.model.model_parameters.get("data_type"))
    element_type = DATA_TYPES.get(data_type, "f32")
    text = (
        f"They are {factor_of(element_type, parameters):g} times the reference's error, a little "
        "more where there are few numbers."
    )
    if generated_tokens(trial.case) is not None:
        text += " Generated text is judged step by step, up to where it leaves the truth's tokens."
    return text


def _notes(trial: Trial, recorded: Case, outcome: Outcome) -> Iterator[str]:
    case, exported = trial.case, outcome.exported
    module = case.model.model_impl.module_path
    yield f"The model is `create_model(**{dict(case.model.model_parameters)!r})` of `{module}`."
    metrics = recorded.metrics
    if source := metrics.artifact_source:
        yield f"Measured on the published artifacts of {_publication(source)}."
    if program := metrics.program_source:
        kinds = ", ".join(program.types)
        yield (
            f"Measured was the published program ({kinds}) of {_publication(program)}; here the "
            "model is exported again."
        )
    if exported is None:
        return
    yield from exported.notes
    recorded_sha256 = metrics.program.artifact_sha256
    if recorded_sha256 and exported.program_sha256:
        same = "that" if recorded_sha256 == exported.program_sha256 else "not that"
        yield f"The program is {same} of the measurement, by its sha256 ({recorded_sha256})."
    elif recorded_sha256:
        yield f"sha256 of the compiled program as measured: {recorded_sha256}."
    versions = versions_of(recorded)
    for name in exported.packages:
        measured = version_in(versions, name)
        here = outcome.versions.get(name)
        if measured and here and measured != here:
            yield f"Exported by {name} {here}; measured was {measured}."


def _publication(source: ArtifactSource | ProgramSource) -> str:
    return f"{source.url} (manifest sha256 {source.manifest_sha256})"


def _without_run(text: str) -> str:
    """Returns the page without the parts that are about running a program."""
    head, _, rest = text.partition("## How to run it")
    return head + "## What is here" + rest.partition("## What is here")[2]
