"""Results as they may be shown to everybody: without the names of hosts, users and their folders.

A result says where its log is, which command measured it, and where a model or an input of the
user's own lies; all name a person's folders. What tells one machine from another stays: its CPU,
and a digest for its name.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import attrs

from comparative_benchmark.results.record import Document, EnvironmentName, Result, Run

_ELSEWHERE = "..."
# The folders of an absolute path; not what follows a host, a word, or another part of a path.
_FOLDERS = re.compile(r"(?<![\w.:/~<-])~?/(?:[^\s/'\"`:;,<>()\[\]{}|=]+/)+")


def without_folders(text: str) -> str:
    """Returns a text in which `.../NAME` stands for absolute paths."""
    return _FOLDERS.sub(f"{_ELSEWHERE}/", text)


def host_name(name: str) -> str:
    """Returns what stands for a host's name: the same for the same one."""
    return f"host-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:6]}"


def published(document: Document) -> Document:
    """Returns a document without names of hosts and folders; links to files are lost."""
    return attrs.evolve(
        document,
        runs=tuple(_run(run) for run in document.runs),
        benchmarks=tuple(_result(result) for result in document.benchmarks),
    )


def _run(run: Run) -> Run:
    around = run.execution_environment
    others = {
        name: attrs.evolve(other, python=without_folders(other.python))
        for name, other in around.environments.items()
    }
    return attrs.evolve(
        run,
        trigger=attrs.evolve(run.trigger, command=_words(run.trigger.command)),
        execution_environment=attrs.evolve(
            around,
            host=attrs.evolve(around.host, hostname=host_name(around.host.hostname)),
            environments=others,
        ),
    )


def _words(command: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(without_folders, command))


def _result(result: Result) -> Result:
    changes: dict[str, Any] = {
        name: without_folders(value)
        for name in ("log_file", "timeline", "reason", "traceback")
        if isinstance(value := getattr(result, name), str)
    }
    if result.absence and result.absence.python is not None:
        python = without_folders(result.absence.python)
        changes["absence"] = attrs.evolve(result.absence, python=python)
    definition, where = result.definition, result.definition.environment
    if isinstance(where, EnvironmentName):
        where = attrs.evolve(where, python=without_folders(where.python))
    # A model that was brought is known by its digest.
    parameters = {
        name: without_folders(value) if isinstance(value, str) else value
        for name, value in definition.model_parameters.items()
    }
    source = definition.input_source
    definition = attrs.evolve(
        definition,
        environment=where,
        model_parameters=parameters,
        input_source=without_folders(source) if isinstance(source, str) else source,
    )
    return attrs.evolve(result, definition=definition, **changes)
