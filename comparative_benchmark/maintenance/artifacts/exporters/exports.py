"""Exports one artifact of a model in a process, reads it back in another, and verifies it."""

import functools
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import cattrs

from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.backends.api import ModelDefinition, get_backend
from comparative_benchmark.engine.details import call_function
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.maintenance.artifacts.exporters.job import Job
from comparative_benchmark.maintenance.artifacts.exporters.kinds import Kind
from comparative_benchmark.maintenance.artifacts.exporters.outcomes import (
    Ending,
    ExportSettings,
    MadeFile,
    Outcome,
    Subject,
)
from comparative_benchmark.maintenance.artifacts.exporters.selection import judge
from comparative_benchmark.results.record import Status
from openxla.benchmark import devices
from openxla.benchmark.artifacts.workload_store import MANIFEST_FILE, Due
from openxla.benchmark.files import sha256_of

_WORKER = Job.__module__
# The folders of an absolute path, without the file's name.
_DIRECTORIES = re.compile(r"(?<![\w:/.])(?:/[\w.+@-]+)+/(?=[\w.])")


class _NotRightError(Exception):
    def __init__(self, verdict: Verification) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def make(
    kind: Kind,
    subject: Subject,
    directory: Path,
    made: Mapping[str, Path],
    settings: ExportSettings,
) -> Outcome:
    """Creates an artifact and reads it back; any error becomes part of the outcome.

    Args:
      kind: type of the artifact.
      subject: the model.
      directory: a new directory: `files` in it contains the artifact; the rest is temporary.
      made: directories with the files of other kinds, by name.
      settings: settings of the run.
    """
    started = time.monotonic()
    name = re.sub(r"[^\w.+-]+", "-", subject.name)
    log_file = settings.run.log_dir / f"{name}.{kind.name}.log"
    facts: dict[str, Any] = {"model": subject.name, "kind": kind.name, "log_file": str(log_file)}
    versions: dict[str, str] = {}
    ending, reason, traceback, error = Ending.OK, None, None, None
    files: tuple[MadeFile, ...] = ()
    phase = "export"
    try:
        if lacking := [name for name in kind.companions if name not in made]:
            raise SessionEnded(
                Status.UNSUPPORTED, phase, f"{', '.join(lacking)} could not be created"
            )
        job = cattrs.unstructure(_job(kind, subject, directory, made, settings))
        call = functools.partial(
            _call, backend=kind.backend, directory=directory, log_file=log_file
        )
        versions = call(
            settings,
            f"{_WORKER}:export",
            {"function": kind.exporter, "producers": list(kind.producers), "job": job},
        )["versions"]
        files = _files(kind, directory / "files")
        phase = "read back"
        answer = call(
            _for_consumer(kind, settings),
            f"{_WORKER}:read_back",
            {"function": kind.consumer, "outputs": str(directory / "outputs"), "job": job},
        )
        if "not_run" in answer:
            ending, reason = Ending.NOT_RUN, _without_paths(answer["not_run"], directory)
        else:
            outputs = [directory / "outputs" / name for name in answer["files"]]
            along = functools.partial(_due_along, subject, directory, settings, log_file)
            verdict = judge(kind, subject, outputs, along)
            error = verdict.relative_rmse
            if not verdict.passed:
                raise _NotRightError(verdict)
        if _files(kind, directory / "files") != files:
            raise SessionEnded(Status.FAILED, phase, "the files changed while they were read")
    except _NotRightError as wrong:
        ending, reason = Ending.WRONG_OUTPUT, f"in {phase}: {wrong}"
    except SessionEnded as ended:
        is_unsupported = ended.status is Status.UNSUPPORTED
        ending = Ending.UNSUPPORTED if is_unsupported else Ending.FAILED
        how = "" if is_unsupported else f" ({ended.status.value})"
        said = ended.explanation if is_unsupported else ended.reason
        reason = f"in {phase}{how}: {_without_paths(said, directory)}"
        traceback = ended.traceback
    return Outcome(
        **facts,
        ending=ending,
        files=files if ending.leaves_files else (),
        reason=reason,
        versions=versions,
        date=settings.date(),
        relative_error=error,
        wall_s=round(time.monotonic() - started, 3),
        traceback=traceback,
    )


def _job(
    kind: Kind,
    subject: Subject,
    directory: Path,
    made: Mapping[str, Path],
    settings: ExportSettings,
) -> Job:
    model, artifacts = subject.case.model, subject.artifacts
    scratch = directory / "scratch"
    scratch.mkdir(parents=True)
    return Job(
        definition=ModelDefinition.of(model),
        architecture=model.model_impl.architecture,
        inputs=tuple(artifacts.inputs),
        truth=tuple(artifacts.truth),
        reference=tuple(artifacts.reference),
        second={
            path.relative_to(artifacts.directory).as_posix(): path
            for path in artifacts.second_files
        },
        workload=artifacts.directory / MANIFEST_FILE,
        directory=directory / "files",
        companions=tuple(made[name] for name in kind.companions),
        scratch=scratch,
        options=kind.options,
        threads=settings.run.threads,
    )


def _due_along(
    subject: Subject, directory: Path, settings: ExportSettings, log_file: Path, tokens: Path
) -> Due:
    """Returns inputs, truth and reference for a run that is given the tokens in a file."""
    backend, target = subject.reference, directory / "along"
    found = _call(
        attrs.evolve(settings, run=settings.run.for_truth()),
        f"{_WORKER}:judge_along",
        {
            "reference": backend.reference,
            "definition": cattrs.unstructure(ModelDefinition.of(subject.case.model)),
            "inputs": [str(path) for path in subject.artifacts.inputs],
            "tokens": str(tokens),
            "target": str(target),
        },
        backend=backend.name,
        directory=directory,
        log_file=log_file,
    )
    return Due(
        inputs=[*subject.artifacts.inputs, tokens],
        truth=[target / "truth" / name for name in found["truth"]],
        reference=[target / "reference" / name for name in found["reference"]],
    )


def _for_consumer(kind: Kind, settings: ExportSettings) -> ExportSettings:
    """Returns settings for a process with access to the consumer's device."""
    if kind.accelerator == "cpu":
        return settings
    return attrs.evolve(settings, run=attrs.evolve(settings.run, device=devices.HOST_GPU))


def _call(
    settings: ExportSettings,
    function: str,
    arguments: Mapping[str, Any],
    *,
    backend: str,
    directory: Path,
    log_file: Path,
) -> dict[str, Any]:
    """Calls a function in a new process.

    Raises:
      SessionEnded: it failed, or the process died, hung, or used too much memory.
    """
    work_dir = directory / "work"
    shutil.rmtree(work_dir, ignore_errors=True)
    work_dir.mkdir()
    with (
        settings.run.open_session(
            get_backend(backend),
            None,
            work_dir=work_dir,
            cache_dir=work_dir,
            log_file=log_file,
        ) as session,
        settings.running.holding(session),
    ):
        return call_function(session, function, arguments, dict[str, Any])


def _files(kind: Kind, directory: Path) -> tuple[MadeFile, ...]:
    """Returns the files of an artifact.

    Raises:
      SessionEnded: a file is missing, empty, or not declared.
    """
    there = {
        path.relative_to(directory).as_posix(): path
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    folders = tuple(name for name in kind.files if name.endswith("/"))
    missing = [name for name in kind.files if name not in there and name not in folders]
    missing += [name for name in folders if not any(path.startswith(name) for path in there)]
    strays = [name for name in there if name not in kind.files and not name.startswith(folders)]
    empty = [name for name, path in there.items() if not path.stat().st_size]
    if missing or strays or empty:
        told = {"missing": missing, "unexpected": strays, "empty": empty}
        faults = "; ".join(f"{what}: {', '.join(names)}" for what, names in told.items() if names)
        raise SessionEnded(
            Status.FAILED, "export", f"the exporter's files are not as declared: {faults}"
        )
    return tuple(
        MadeFile(path=name, sha256=sha256_of(path), size_bytes=path.stat().st_size)
        for name, path in there.items()
    )


def _without_paths(reason: str, directory: Path) -> str:
    """Removes local directories from a reason, and truncates it, because it will be published."""
    return _DIRECTORIES.sub("", reason.replace(f"{directory}/", ""))[:600]
