"""Exports all artifacts of models; each model's directory appears at once, with its manifest."""

import concurrent.futures
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from comparative_benchmark.backends.api import get_backend, is_installed
from comparative_benchmark.maintenance.artifacts.exporters import exports, kinds
from comparative_benchmark.maintenance.artifacts.exporters.kinds import Kind
from comparative_benchmark.maintenance.artifacts.exporters.outcomes import (
    Ending,
    ExportSettings,
    Outcome,
    Subject,
    refused,
)
from openxla.benchmark.artifacts import manifest as manifests
from openxla.benchmark.artifacts.manifest import ArtifactFile, ExportFailure, Manifest

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
    found, refusals = kinds.of_model(subject.case.model, types)
    framework = subject.case.model.model_impl.framework_type
    possible = []
    for kind in found:
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
        make: Make = exports.make,
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
            manifests.write(staging, manifest_of(name, outcomes))
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
