"""Writes a reproducer's data and scripts; exporters write the program, `readme` the README."""

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
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from comparative_benchmark.api.recorded_trials import versions_of
from comparative_benchmark.backends.reproducing import Exported
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Status
from comparative_benchmark.results.results_file import plain
from comparative_benchmark.studies.reproduce import limits
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts
from openxla.benchmark.workloads import generated_tokens

TEMPLATES = Path(__file__).parent / "templates"
_WIDTH = 88


@attrs.frozen(kw_only=True)
class Outcome:
    """Outcome of an export.

    Attributes:
      exported: the exported program; None if the export failed.
      versions: versions of the packages that the script needs, in the exporting environment.
      ended: why the export failed; None on success.
      task: arguments of `exporting.export`, without inputs and directories, and `environment`.
    """

    exported: Exported | None
    versions: Mapping[str, str]
    ended: SessionEnded | None
    task: Mapping[str, Any]

    @property
    def templates(self) -> Path:
        """The folder with the backend's template of `run.py`, next to its reproducer."""
        module, _, _ = self.task["reproducer"].partition(":")
        found = importlib.util.find_spec(module)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(f"the reproducer's module {module} is not installed")
        return Path(found.origin).parent


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
    found = limits.expected(
        artifacts.truth,
        artifacts.reference,
        trial.verify_parameters,
        generates=generated_tokens(trial.case) is not None,
        data_type=trial.workload.data_type,
    )
    _write_json(directory / "expected.json", found)


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
            f"the results file contains an invalid version of {name}: {version!r}"
        ) from None


def version_in(versions: Mapping[str, str], name: str) -> str | None:
    """Returns the version of a package, ignoring differences in the spelling of its name."""
    wanted = name.lower().replace("_", "-")
    for known, version in versions.items():
        if known.lower().replace("_", "-") == wanted:
            return version
    return None


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
    found = json.loads(path.read_text(encoding="utf-8"))
    _write_json(path, {**more, **found})
