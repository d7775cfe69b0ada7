"""Results without the names of hosts, users and folders, and the location of profiles."""

import hashlib
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import msgspec

from comparative_benchmark.backends.operator_profile import FILE, OperatorProfile
from comparative_benchmark.results.record import (
    Document,
    EnvironmentName,
    ExecutionEnvironment,
    Result,
    Run,
    Trigger,
)

# Suffix of the profile folder of `cbs run --profile -o r.json` and `cbs explain r.json`.
SUFFIX = ".profiles"
# Longer names of profiles written by `cbs explain` are truncated.
_LONGEST = 200


def folder_for(results: Path, result: Result) -> Path:
    """Returns the path at which `cbs explain` stores the profile of a result."""
    return results.with_suffix(SUFFIX) / _place(result)


def find(folder: Path, result: Result) -> Path | None:
    """Returns the path of a result's operator profile; None without a usable one.

    Profiles from `cbs explain` take precedence over those from `cbs run --profile`.

    Args:
      folder: folder of the results file.
      result: a result of that file.
    """
    return next(filter(os.path.isfile, _candidates(folder, result)), None)


def load(folder: Path, result: Result) -> OperatorProfile | None:
    """Returns the operator profile of a result; None without a usable one.

    Raises:
      OSError, ValueError: the file cannot be read or is not a profile.
    """
    path = find(folder, result)
    return None if path is None else read(path)


def read(path: Path) -> OperatorProfile:
    """Reads a profile.

    Raises:
      OSError, ValueError: the file cannot be read or is not a profile.
    """
    profile = msgspec.json.decode(path.read_bytes(), type=OperatorProfile)
    numbers = [(each.us, each.calls, each.flops, each.bytes) for each in profile.operators]
    if any(n is not None and not (math.isfinite(n) and n >= 0) for row in numbers for n in row):
        raise ValueError(f"{path}: a time or count is negative or not finite")
    return profile


def _candidates(folder: Path, result: Result) -> Iterator[Path]:
    yield from sorted(folder.glob(f"*{SUFFIX}/{_place(result)}/{FILE}"))
    if not result.profile or FILE not in result.profile.files:
        return
    parts = Path(result.profile.directory).parts
    starts = [place for place, part in enumerate(parts) if part.endswith(SUFFIX)]
    # Results files are untrusted input: accept only paths inside profile folders.
    if starts and ".." not in parts:
        yield folder.joinpath(*parts[starts[-1] :], FILE)
        yield Path(result.profile.directory) / FILE


def _place(result: Result) -> Path:
    """Returns the profile folder of a result; sanitises names, which are untrusted."""
    names = (result.run_id, f"explain-{'-'.join(result.key)}")
    return Path(*(re.sub(r"[^\w+-]+", "-", name)[:_LONGEST] for name in names))


_ELSEWHERE = "..."
# Metrics that may contain the message of an exception.
_TEXTS = (
    *("error", "without_second", "without_fresh_runs", "without_float64", "not_ranked"),
    "truth_not_isolated",
)
# The folders of an absolute path, but not text after a host, a word or another path component.
_FOLDERS = re.compile(r"(?<![\w.:/~<-])~?/(?:[^\s/'\"`:;,<>()\[\]{}|=]+/)+")


def without_folders(text: str) -> str:
    """Replaces absolute paths in a text by `.../NAME`."""
    return _FOLDERS.sub(f"{_ELSEWHERE}/", text)


def host_name(name: str) -> str:
    """Returns a stable pseudonym for a host name."""
    return f"host-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:6]}"


def published(document: Document) -> Document:
    """Returns a document without host and folder names; links to files are removed."""
    return attrs.evolve(
        document,
        trigger=_trigger(document.trigger),
        execution_environment=_environment(document.execution_environment),
        runs=tuple(_run(run) for run in document.runs),
        benchmarks=tuple(_result(result) for result in document.benchmarks),
    )


def _trigger(trigger: Trigger) -> Trigger:
    return attrs.evolve(trigger, command=tuple(map(without_folders, trigger.command)))


def _environment(around: ExecutionEnvironment) -> ExecutionEnvironment:
    host = attrs.evolve(around.host, hostname=host_name(around.host.hostname))
    others = {
        name: attrs.evolve(other, python=without_folders(other.python))
        for name, other in around.environments.items()
    }
    return attrs.evolve(around, host=host, environments=others)


def _run(run: Run) -> Run:
    where = run.allocation
    return attrs.evolve(
        run,
        allocation=where and attrs.evolve(where, node=host_name(where.node)),
        trigger=_trigger(run.trigger),
        execution_environment=_environment(run.execution_environment),
    )


def _result(result: Result) -> Result:
    changes: dict[str, Any] = {
        name: _shown(getattr(result, name))
        for name in ("log_file", "timeline", "reason", "traceback")
    }
    if result.absence:
        absence = attrs.evolve(result.absence, python=_shown(result.absence.python))
        changes["absence"] = absence
    if profile := result.profile:
        # The page finds a profile next to the results file.
        folder = re.sub(rf"^.*/(?=[^/]*{re.escape(SUFFIX)}/)", "", profile.directory)
        changes["profile"] = attrs.evolve(
            profile, directory=without_folders(folder), error=_shown(profile.error)
        )
    measured = result.measured
    metrics = attrs.evolve(
        measured,
        **{name: _shown(getattr(measured, name)) for name in _TEXTS},
        variables=measured.variables
        and {name: without_folders(value) for name, value in measured.variables.items()},
    )
    changes["metrics"] = attrs.evolve(result.metrics, **{result.level: metrics})
    definition, where = result.definition, result.definition.environment
    if isinstance(where, EnvironmentName):
        where = attrs.evolve(where, python=without_folders(where.python))
    definition = attrs.evolve(
        definition,
        environment=where,
        # User models are identified by their digest.
        model_parameters={
            name: _shown(value) for name, value in definition.model_parameters.items()
        },
        input_source=_shown(definition.input_source),
    )
    return attrs.evolve(result, definition=definition, **changes)


def _shown(value: Any) -> Any:
    return without_folders(value) if isinstance(value, str) else value
