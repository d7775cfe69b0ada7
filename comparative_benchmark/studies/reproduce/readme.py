"""Writes a reproducer's README: how it was recorded, how to run it, and its contents."""

from collections.abc import Iterator
from pathlib import Path

from comparative_benchmark.analysis.verification.error_limits import MIN_SQNR, factor_of
from comparative_benchmark.api.recorded_trials import versions_of
from comparative_benchmark.backends.reproducing import Exported
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import ArtifactSource, Host, ProgramSource
from comparative_benchmark.studies.reproduce.writing import (
    TEMPLATES,
    Outcome,
    filled,
    shell_lines,
    version_in,
)
from openxla.benchmark.models.architectures.base import DATA_TYPES
from openxla.benchmark.workloads import generated_tokens

# Expected result of running the reproducer, by recorded status.
_DUE = {
    "ok": "It is expected to pass, with a latency similar to the recorded one.",
    "unsteady": "It is expected to pass; the recorded problem is that its times do not settle.",
    "wrong_output": "It is expected to fail as recorded.",
    "crashed": "It is expected to crash as recorded.",
    "timeout": "It is expected to take at least as long as recorded.",
    "out_of_memory": "It is expected to need as much memory as recorded.",
    "unsupported": "The suite refused it for the reason above; here it runs as far as it can.",
}


def write(
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
        f"The program of this case cannot be exported{how}, so there is nothing to compile. "
        "`traceback.txt` shows where the export fails, and `export.py` repeats the export."
    )


def _files(directory: Path, outcome: Outcome) -> Iterator[tuple[str, str]]:
    exported = outcome.exported
    described = {
        **({} if exported is None else exported.files),
        "inputs": "input_0.npy and so on, one per argument; bfloat16 has two bytes per element",
        "expected": "truth_N.npy and reference_N.npy for each output",
        "expected.json": "the limits (see below)",
        "run.py": "compiles, runs, checks and times the program",
        "check.py": "reads arrays and checks outputs; needs only NumPy",
        "commands.sh": "the same steps as shell commands",
        "requirements.txt": "the measured package versions",
        "result.json": "the recorded result and a description of the machine",
        "traceback.txt": "traceback of the failed export",
        "export.py": "repeats the export with export.json; needs the suite and the framework",
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
        "slightly higher for few numbers."
    )
    if generated_tokens(trial.case) is not None:
        text += " Generated text is judged step by step, up to the first token that differs."
    return text


def _notes(trial: Trial, recorded: Case, outcome: Outcome) -> Iterator[str]:
    case, exported = trial.case, outcome.exported
    module = case.model.model_impl.module_path
    yield f"The model is `create_model(**{dict(case.model.model_parameters)!r})` from `{module}`."
    metrics = recorded.metrics
    if source := metrics.artifact_source:
        yield f"Measured on the published artifacts at {_publication(source)}."
    if program := metrics.program_source:
        kinds = ", ".join(program.types)
        yield (
            f"The published program ({kinds}) at {_publication(program)} was measured; this "
            "reproducer exports the model again."
        )
    if exported is None:
        return
    yield from exported.notes
    recorded_sha256 = metrics.program.artifact_sha256
    if recorded_sha256 and exported.program_sha256:
        same = "the same as" if recorded_sha256 == exported.program_sha256 else "different from"
        yield f"The program is {same} the measured one, whose sha256 is {recorded_sha256}."
    elif recorded_sha256:
        yield f"sha256 of the measured program: {recorded_sha256}."
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
    fields = {
        "due": _DUE.get(status, "It is expected to end as recorded."),
        "commands": _commands_text(exported),
    }
    text = filled(TEMPLATES / "readme_run.md.txt", fields)
    if check:
        text += f"Output of a run on the machine that exported it:\n\n```\n{check}\n```\n\n"
    return text
