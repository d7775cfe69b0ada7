"""Exports all artifacts of models; each model's directory appears at once, with its manifest.

One process exports an artifact, another reads it back, and the parent verifies it.
"""

import concurrent.futures
import functools
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.backends.api import ModelDefinition, get_backend
from comparative_benchmark.backends.missing_packages import is_installed
from comparative_benchmark.engine.session import SessionEnded, call_function
from comparative_benchmark.maintenance.artifacts import kinds
from comparative_benchmark.maintenance.artifacts.job import Job
from comparative_benchmark.maintenance.artifacts.kinds import Kind
from comparative_benchmark.maintenance.artifacts.outcomes import (
    Ending,
    ExportSettings,
    MadeFile,
    Outcome,
    Subject,
    refused,
)
from comparative_benchmark.maintenance.artifacts.selection import judge
from comparative_benchmark.results.record import Status
from openxla.benchmark import devices
from openxla.benchmark.artifacts import manifests
from openxla.benchmark.artifacts.manifests import ArtifactFile, ExportFailure, Manifest
from openxla.benchmark.artifacts.workload_store import MANIFEST_FILE, Due
from openxla.benchmark.files import sha256_of

_WORKER = Job.__module__
# The folders of an absolute path, without the file's name.
_DIRECTORIES = re.compile(r"(?<![\w:/.])(?:/[\w.+@-]+)+/(?=[\w.])")


class _NotRightError(Exception):
    def __init__(self, verdict: Verification) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def export_artifact(
    kind: Kind,
    subject: Subject,
    directory: Path,
    made: Mapping[str, Path],
    settings: ExportSettings,
) -> Outcome:
    """Creates an artifact and reads it back; failures of its processes become part of the outcome.

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
        job = _job(kind, subject, directory, made, settings).as_json()
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
    answer = _call(
        attrs.evolve(settings, run=settings.run.for_truth()),
        f"{_WORKER}:judge_along",
        {
            "reference": backend.reference,
            "definition": attrs.asdict(ModelDefinition.of(subject.case.model)),
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
        truth=[target / "truth" / name for name in answer["truth"]],
        reference=[target / "reference" / name for name in answer["reference"]],
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
            get_backend(backend), None, work_dir=work_dir, cache_dir=work_dir, log_file=log_file
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
            Status.FAILED, "export", f"the exporter's files differ from the declared ones: {faults}"
        )
    return tuple(
        MadeFile(path=name, sha256=sha256_of(path), size_bytes=path.stat().st_size)
        for name, path in there.items()
    )


def _without_paths(reason: str, directory: Path) -> str:
    """Removes local directories from a reason, and truncates it, because it will be published."""
    return _DIRECTORIES.sub("", reason.replace(f"{directory}/", ""))[:600]


Make = Callable[[Kind, Subject, Path, Mapping[str, Path], ExportSettings], Outcome]


class Observer(Protocol):
    """Receives progress."""

    def export_finished(self, outcome: Outcome, position: int, total: int) -> None:
        """Called when an export has ended; positions start at 1."""


@attrs.frozen(kw_only=True)
class Plan:
    """The artifacts to export for a model.

    Attributes:
      subject: the model.
      kinds: kinds in the order in which they are exported.
      refused: reasons for kinds that are not tried.
    """

    subject: Subject
    kinds: Sequence[Kind]
    refused: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.kinds) + len(self.refused)


def plan(subject: Subject, types: Sequence[str]) -> Plan:
    """Returns the plan for a model; kinds with missing packages are refused with a reason.

    Raises:
      UnknownKindError: a type does not exist.
    """
    chosen, refusals = kinds.of_model(subject.case.model, types)
    framework = subject.case.model.model_impl.framework_type
    possible = []
    for kind in chosen:
        if missing := [name for name in kind.modules[framework] if not is_installed(name)]:
            refusals[kind.name] = get_backend(kind.backend).absence(missing).sentence
        else:
            possible.append(kind)
    return Plan(subject=subject, kinds=possible, refused=refusals)


class Generation:
    """Exports the artifacts of models, one model after the other.

    Args:
      root: parent of the models' directories.
      settings: settings of the exports.
      observer: receives each outcome.
      jobs: number of parallel exports per model.
      make: exports one artifact; can be replaced in tests.
    """

    def __init__(
        self,
        root: Path,
        settings: ExportSettings,
        observer: Observer,
        *,
        jobs: int = 1,
        make: Make = export_artifact,
    ) -> None:
        self._root, self._settings, self._observer = root, settings, observer
        self._jobs, self._make = jobs, make
        self._done = self._total = 0

    def run(self, plans: Sequence[Plan]) -> list[Outcome]:
        """Runs all exports; after an interruption, directories of completed models remain."""
        self._total, self._done = sum(map(len, plans)), 0
        self._root.mkdir(parents=True, exist_ok=True)
        return [outcome for item in plans for outcome in self._model(item)]

    def _model(self, item: Plan) -> list[Outcome]:
        name = item.subject.name
        with tempfile.TemporaryDirectory(
            prefix=f".{name}.", dir=self._root, ignore_cleanup_errors=True
        ) as scratch:
            work, staging = Path(scratch) / "work", Path(scratch) / name
            staging.mkdir()
            outcomes = self._exports(item, work)
            for outcome in outcomes:
                for file in outcome.files:
                    target = staging / file.path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    (work / outcome.kind / "files" / file.path).rename(target)
            manifests.write_manifest(staging, manifest_of(name, outcomes))
            # Flush to disk before renaming, so that the directory is complete even after a power
            # failure.
            _sync(staging)
            staging.rename(self._root / name)
        return outcomes

    def _exports(self, item: Plan, work: Path) -> list[Outcome]:
        outcomes = {}
        for kind, reason in item.refused.items():
            date = self._settings.date()
            outcomes[kind] = refused(item.subject.name, kind, reason, date)
            self._tell(outcomes[kind])
        made: dict[str, Path] = {}
        # Kinds that others need come first; within each group, exports run in parallel.
        needed = {name for kind in item.kinds for name in kind.companions}
        for group in (
            [kind for kind in item.kinds if kind.name in needed],
            [kind for kind in item.kinds if kind.name not in needed],
        ):
            for outcome in self._group(group, item.subject, work, dict(made)):
                outcomes[outcome.kind] = outcome
                if outcome.ending.leaves_files:
                    made[outcome.kind] = work / outcome.kind / "files"
        order = {kind.name: number for number, kind in enumerate(kinds.KINDS)}
        # Types without an exporter come last.
        return sorted(outcomes.values(), key=lambda item: (order.get(item.kind, 1000), item.kind))

    def _group(
        self, group: Sequence[Kind], subject: Subject, work: Path, made: Mapping[str, Path]
    ) -> list[Outcome]:
        def one(kind: Kind) -> Outcome:
            directory = work / kind.name
            directory.mkdir(parents=True)
            outcome = self._make(kind, subject, directory, made, self._settings)
            for name in ("work", "scratch", "outputs"):
                shutil.rmtree(directory / name, ignore_errors=True)
            return outcome

        outcomes = []
        if self._jobs == 1:
            for kind in group:
                outcomes.append(one(kind))
                self._tell(outcomes[-1])
            return outcomes
        with concurrent.futures.ThreadPoolExecutor(self._jobs) as pool:
            futures = [pool.submit(one, kind) for kind in group]
            try:
                for future in concurrent.futures.as_completed(futures):
                    outcomes.append(future.result())
                    self._tell(outcomes[-1])
            except BaseException:
                for future in futures:
                    future.cancel()
                self._settings.running.end_all()  # the pool waits for running exports
                raise
        return outcomes

    def _tell(self, outcome: Outcome) -> None:
        self._done += 1
        self._observer.export_finished(outcome, self._done, self._total)


def manifest_of(model: str, outcomes: Sequence[Outcome]) -> Manifest:
    """Returns the manifest for the outcomes of a model's exports."""
    files = [
        ArtifactFile(
            path=file.path,
            artifact_type=outcome.kind,
            sha256=file.sha256,
            size_bytes=file.size_bytes,
            producers=outcome.versions,
            date=outcome.date,
            not_run=outcome.reason if outcome.ending is Ending.NOT_RUN else None,
        )
        for outcome in outcomes
        for file in outcome.files
    ]
    failures = [
        ExportFailure(
            artifact_type=outcome.kind,
            reason=outcome.reason or "unknown reason",
            producers=outcome.versions,
            date=outcome.date,
        )
        for outcome in outcomes
        if not outcome.ending.leaves_files
    ]
    return Manifest(model=model, files=tuple(files), failures=tuple(failures))


def _sync(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
