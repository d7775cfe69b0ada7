"""Fetches published artifacts before a run: inputs, truth, checkpoints, exported programs.

Lock files list them. A model without a lock may define an `artifacts_dir_url`; the first manifest
that this machine reads there stays locked for it (see `locked_urls`).

Everything that the trials of a run need is fetched up front, in parallel. If an artifact cannot be
fetched, only the trials of its workload fail, with the reason; locked artifacts are never generated
locally instead.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.engine.session import Program, SessionEnded
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results.record import Status
from openxla.benchmark.artifacts import installing, manifests, published_models
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.installing import CHECKPOINT_TYPE, WORKLOAD_TYPES
from openxla.benchmark.artifacts.manifests import LockedModel
from openxla.benchmark.artifacts.published_models import (
    FetchedModel,
    FetchError,
    FetchOptions,
    Source,
    fetch,
)
from openxla.benchmark.artifacts.stores import Progress, StoreError, human_bytes
from openxla.benchmark.artifacts.workload_store import ArtifactError, WorkloadArtifacts
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.workloads import generated_tokens


def types_for(trial: Trial) -> frozenset[str]:
    """Returns the artifact types, over all alternatives, that a trial may start from."""
    if _why_not(trial):
        return frozenset()
    ways = trial.competitor.backend.starts_from.get(trial.competitor.compiler.name, ())
    return frozenset(kind for way in ways for kind in way)


def program_of(trial: Trial, fetched: FetchedModel | None, url: str | None) -> Program:
    """Returns the program that a trial starts from.

    Args:
      trial: trial of a backend that can start from a program.
      fetched: fetched artifacts of its model; None without any.
      url: URL of the publication; None if the model is not locked.

    Raises:
      SessionEnded: `unsupported`, with the reason, if no program fits the trial.
    """
    if reason := _why_not(trial):
        raise _unsupported(reason)
    competitor, model = trial.competitor, trial.case.model.name
    ways = competitor.backend.starts_from.get(competitor.compiler.name, ())
    if not ways:
        possible = ", ".join(competitor.backend.starts_from)
        raise _unsupported(f"{competitor} cannot start from published programs, but {possible} can")
    if url is None:
        raise _unsupported(f"no artifacts for {model} are locked")
    if fetched is None:
        raise _unsupported(f"no program for {model} is in the cache")
    published = {file.artifact_type for file in fetched.manifest.files}
    for way in ways:
        if published.issuperset(way):
            return Program(
                files={kind: _files(fetched, kind) for kind in way},
                origin={"model": model, "url": url, "manifest_sha256": fetched.manifest_sha256},
            )
    needed = ", or ".join(" with ".join(way) for way in ways)
    because = [f for f in fetched.manifest.failures if any(f.artifact_type in w for w in ways)]
    why = f" ({because[0].artifact_type}: {because[0].reason})" if because else ""
    raise _unsupported(f"{model} at {url} was published without {needed}{why}")


def _files(fetched: FetchedModel, kind: str) -> dict[Path, str]:
    return {
        fetched.files[file.path]: file.sha256
        for file in fetched.manifest.files
        if file.artifact_type == kind
    }


def _why_not(trial: Trial) -> str | None:
    accelerator = trial.competitor.compiler.accelerator or "cpu"
    if trial.device.accelerator_type != accelerator:
        return (
            f"{trial.competitor} starts only from programs for {accelerator.upper()}s, but the "
            f"device is {trial.device.name}"
        )
    if generated_tokens(trial.case) is not None:
        return (
            f"{trial.case.model.name} is a generative model: verification runs it on additional "
            "inputs, which an exported program does not accept"
        )
    if trial.case.input_data.content_sha256 is not None:
        return "published programs are not used with your own inputs"
    return None


def _unsupported(reason: str) -> SessionEnded:
    reason = f"{reason}; omit --exported-programs to export the model here"
    return SessionEnded(Status.UNSUPPORTED, "artifacts", reason)


_SAY_EVERY_S = 10.0
# Few attempts, because a server that is down affects all models.
_ATTEMPTS = 3
_WAYS_OUT = "use local artifacts with --no-download, or generate them with --generate-artifacts"


class Fetching:
    """Fetches and installs the locked artifacts of the models of trials.

    Args:
      announce: called with a message about each transfer.
      locks: locks by model; None reads the lock files.
      only_local: use only cached artifacts, without transfers.
      programs: whether to fetch programs for competitors that can start from them.
      cache: folder for fetched artifacts.

    Attributes:
      locks: locks by model.
    """

    def __init__(
        self,
        announce: Callable[[str], None],
        *,
        locks: Mapping[str, LockedModel] | None = None,
        only_local: bool = False,
        programs: bool = False,
        cache: Cache | None = None,
    ) -> None:
        self.locks = manifests.usable_locks() if locks is None else dict(locks)
        # URLs of models locked through their definitions, and the reasons for models that are not.
        self._urls: dict[str, str] = {}
        self._nowhere: dict[str, str] = {}
        self._announce = announce
        self._only_local = only_local
        self._programs = programs
        self._cache = cache or Cache()
        self._fetched: dict[str, FetchedModel] = {}
        self._errors: dict[str, str] = {}

    @property
    def locked(self) -> frozenset[str]:
        """SHA-256 digests of all locked manifests."""
        return frozenset(lock.manifest_sha256 for lock in self.locks.values())

    def lock_urls(self, cases: Iterable[BenchmarkCase]) -> None:
        """Locks models by the URLs in their definitions if no lock file lists them.

        If a manifest cannot be read, only the trials of that model fail. Without transfers, only
        manifests read earlier are used.
        """
        urls = {
            case.model.name: published_models.url_as_written(url)
            for case in cases
            if (url := case.model.artifacts_dir_url) and case.input_data.content_sha256 is None
            if case.model.name not in self.locks
        }
        locked, errors = published_models.locked_urls(
            urls, cache=self._cache, only_local=self._only_local, attempts=_ATTEMPTS
        )
        self.locks |= locked
        self._urls = {model: urls[model] for model in locked}
        self._nowhere = {
            model: f"cannot fetch the published artifacts for {model} from {urls[model]}: "
            f"{reason}; correct the model's artifacts_dir_url, {_WAYS_OUT}"
            for model, reason in errors.items()
        }

    def why_not_published(self, case: BenchmarkCase) -> str | None:
        """Returns why nothing can be fetched from a definition's URL; None if it can."""
        return None if case.input_data.content_sha256 else self._nowhere.get(case.model.name)

    def is_locked(self, case: BenchmarkCase) -> bool:
        """Returns whether a case's artifacts are published; never true for user inputs."""
        return case.model.name in self.locks and case.input_data.content_sha256 is None

    def is_current(self, artifacts: WorkloadArtifacts) -> bool:
        """Returns whether artifacts were fetched by a current lock, of any model."""
        origin = artifacts.origin
        return origin is not None and origin["manifest_sha256"] in self.locked

    def fetch(self, trials: Sequence[tuple[Trial, bool]]) -> None:
        """Downloads the missing artifacts of trials to the cache, as far as possible.

        Args:
          trials: trials, each with a flag that is true if its inputs and truth are missing.
        """
        wanted: dict[str, frozenset[str]] = {}
        for trial, lacks_workload in trials:
            if self.is_locked(trial.case):
                types = WORKLOAD_TYPES if lacks_workload else frozenset()
                if installing.lacks_checkpoint(trial.case):
                    types |= {CHECKPOINT_TYPE}
                if self._programs:
                    types |= types_for(trial)
                wanted[trial.case.model.name] = wanted.get(trial.case.model.name, types) | types
        groups: dict[frozenset[str], list[str]] = {}
        for model, types in wanted.items():
            local = not self._only_local or self._is_cached(self.locks[model], types)
            if types and local:
                groups.setdefault(types, []).append(model)
        for types, models in groups.items():
            self._fetch(models, types)

    def install_checkpoint(self, trial: Trial) -> None:
        """Installs the checkpoint of a trial if it is published and missing.

        Raises:
          ArtifactError: the checkpoint is unavailable or differs from the lock.
        """
        if not installing.lacks_checkpoint(trial.case):
            return
        if (fetched := self._fetched_model(trial.case)) is not None:
            url = self.locks[trial.case.model.name].url
            installing.install_checkpoint(fetched, url=url, case=trial.case)

    def install(self, trial: Trial) -> WorkloadArtifacts | None:
        """Installs inputs, truth and reference of a trial.

        Returns:
          None if the model is not locked, nothing is published for these inputs, or nothing is
            cached and transfers are not allowed.

        Raises:
          ArtifactError: the artifacts are unavailable or belong to another workload.
        """
        case = trial.case
        if (fetched := self._fetched_model(case)) is None:
            return None
        url = self.locks[case.model.name].url
        installed = installing.install_workload(
            fetched, url=url, case=case, workload=trial.workload
        )
        if installed is None:
            state = "published" if case.model.name in self._urls else "locked"
            self._announce(
                f"{trial.workload.label}: no artifacts {state} at {url} match these inputs and the "
                "installed versions"
            )
        return installed

    def program(self, trial: Trial) -> Program | None:
        """Returns the published program that a trial starts from.

        Returns:
          None if programs are not wanted or the backend does not start from one.

        Raises:
          SessionEnded: no program fits the trial.
          ArtifactError: the program is unavailable.
        """
        if not self._programs or not trial.competitor.backend.starts_from:
            return None
        lock = self.locks.get(trial.case.model.name)
        return program_of(trial, self._fetched_model(trial.case), lock.url if lock else None)

    def _fetched_model(self, case: BenchmarkCase) -> FetchedModel | None:
        """Returns the fetched artifacts of a case, if any.

        Raises:
          ArtifactError: they could not be fetched.
        """
        model = case.model.name
        if not self.is_locked(case):
            return None
        if reason := self._errors.get(model):
            state = "published" if model in self._urls else "locked"
            raise ArtifactError(
                f"cannot fetch the {state} artifacts for {model} from {self.locks[model].url}: "
                f"{reason}; {_WAYS_OUT}"
            )
        return self._fetched.get(model)

    def _fetch(self, models: Sequence[str], types: frozenset[str]) -> None:
        sources = [Source.locked(self.locks[model]) for model in models]
        size = sum(source.lock.size_bytes for source in sources if source.lock)
        self._announce(
            f"fetching published artifacts for {len(models)} "
            f"model{'s' if len(models) > 1 else ''} (up to {human_bytes(size)})"
        )
        options = FetchOptions(
            artifact_types=types, attempts=_ATTEMPTS, on_progress=Occasionally(self._announce)
        )
        try:
            fetched = fetch(sources, cache=self._cache, options=options)
        except FetchError as error:
            fetched = error.fetched
            self._note(models, fetched, error.errors, str(error))
        except (StoreError, OSError) as error:
            if len(models) > 1:  # the error of one model must not stop the others
                for model in models:
                    self._fetch([model], types)
                return
            fetched = []
            self._note(models, fetched, {}, str(error))
        by_manifest = {model_files.manifest_sha256: model_files for model_files in fetched}
        for model in models:
            model_files = by_manifest.get(self.locks[model].manifest_sha256)
            if model_files is None:
                continue
            if model_files.manifest.model == model:
                self._fetched[model] = model_files
            else:
                self._errors[model] = (
                    f"the locked URL is for {model_files.manifest.model}: lock {model} again"
                )

    def _note(
        self,
        models: Sequence[str],
        fetched: Sequence[FetchedModel],
        errors: Mapping[str, Exception],
        message: str,
    ) -> None:
        """Records the errors of each missing model's objects, or else the common message."""
        here = {model_files.manifest_sha256 for model_files in fetched}
        for model in models:
            lock = self.locks[model]
            if lock.manifest_sha256 in here:
                continue
            own = [str(e) for name, e in errors.items() if name.startswith(f"{lock.url}/")]
            self._errors[model] = " ".join((own[0] if own else message).split())

    def _is_cached(self, lock: LockedModel, types: frozenset[str]) -> bool:
        """Returns whether everything is cached, so that nothing has to be transferred."""
        if not self._cache.holds(lock.manifest_sha256, lock.manifest_size_bytes):
            return False
        path = self._cache.object_path(lock.manifest_sha256)
        try:
            manifest = manifests.parse_manifest(path.read_bytes(), where=str(path))
        except StoreError:
            return True  # `fetch` reports the error
        return all(
            self._cache.holds(file.sha256, file.size_bytes)
            for file in manifest.files
            if file.artifact_type in types
        )


@attrs.define
class Occasionally:
    """Prints transfer progress at intervals, because a run's log has no live line."""

    announce: Callable[[str], None]
    _told_at: float = attrs.field(factory=time.monotonic)

    def __call__(self, progress: Progress) -> None:
        """Records progress, and prints it if enough time has passed."""
        if time.monotonic() - self._told_at >= _SAY_EVERY_S:
            self._told_at = time.monotonic()
            self.announce(f"fetching published artifacts: {progress}")
