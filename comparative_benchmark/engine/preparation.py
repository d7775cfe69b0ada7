"""Fetches or generates the inputs, truth and reference of each workload.

Artifacts listed in a lock file are fetched; all others are generated here, in separate workers.
This happens before the first trial, so that it neither disturbs measurements nor counts towards
their memory. Artifacts are generated on the CPU, whatever device is measured.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import msgspec

from comparative_benchmark.backends.api import recorded_packages
from comparative_benchmark.backends.recipes.definition import Rounding
from comparative_benchmark.engine.fetching import Fetching
from comparative_benchmark.engine.judging import (
    Judge,
    Truth,
    changes,
    is_foreign,
    may_judge,
    truth_of,
    why_plugin,
)
from comparative_benchmark.engine.messages import (
    FurtherPrepared,
    Prepared,
    QuantisedRun,
    Report,
    SavedArray,
    paths_of,
)
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.session_pool import SessionPool
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import RecipeNoise, Trial
from comparative_benchmark.results.record import Status
from openxla.benchmark.artifacts import array_files, workload_store
from openxla.benchmark.artifacts.array_files import UserInputError
from openxla.benchmark.artifacts.workload_store import FURTHER, ArtifactError, WorkloadArtifacts
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import BenchmarkCase, ModelFrameworkType, TensorSpec
from openxla.benchmark.files import temporary_folder
from openxla.benchmark.models import architectures
from openxla.benchmark.models.in_tree import IN_TREE
from openxla.benchmark.models.second_input import FURTHER_RULES
from openxla.benchmark.training import architecture
from openxla.benchmark.workloads import generated_tokens, training_of, trains


def why_too_large(trial: Trial, settings: RunSettings) -> str | None:
    """Returns why a training case cannot fit into a worker's memory; None if it may.

    Includes the memory for the truth, always computed on the host, if it is still missing.
    """
    name = trial.case.model.model_impl.architecture
    if name is None or training_of(trial.case) is None:
        return None
    parameters = architectures.get(name).complete(trial.case.model.model_parameters)
    on_host = trial.device.accelerator_type == "cpu"
    needs = {"the training steps": architecture.step_bytes(parameters)} if on_host else {}
    if not workload_store.directory_of(trial.workload).exists():
        needs["the float64 truth for the training steps"] = architecture.truth_bytes(parameters)
    what, needed = max(needs.items(), key=lambda item: item[1], default=("", 0))
    limit = settings.limits.memory_bytes
    if needed <= limit:
        return None
    weights = architecture.number_of_weights(parameters)
    return (
        f"{what} would need at least {needed / 2**30:.1f} GiB of memory "
        f"({weights / 1e6:.0f} M weights, batch {parameters['batch_size']}), "
        f"but the limit is {limit / 2**30:.1f} GiB: use a smaller batch, or raise --memory-limit"
    )


# JAX is last: op by op, it compiles each operation per shape, three quarters of a truth's time.
_QUICK_FIRST = (ModelFrameworkType.PYTORCH, ModelFrameworkType.TF_V2, ModelFrameworkType.JAX)
A = TypeVar("A", bound=Report)
# Memory use below this is not reported, because most machines have it.
_MEMORY_WORTH_TELLING = 4 * 2**30


class Preparation:
    """Artifacts of each workload, or the reason why a case has none.

    `artifacts` is keyed by workload digest, `failures` by case name.
    """

    def __init__(self, settings: RunSettings, announce: Callable[[str], None]) -> None:
        self.artifacts: dict[str, WorkloadArtifacts] = {}
        self.failures: dict[str, SessionEnded] = {}
        self._settings = settings
        self._announce = announce
        # Keyed by workload digest and rounding.
        self._noise: dict[tuple[str, Rounding | None], RecipeNoise] = {}
        self._without_noise: set[tuple[str, Rounding | None, ModelFrameworkType]] = set()
        # Artifacts under the root directory, and workloads without their locked artifacts.
        self._local: dict[str, WorkloadArtifacts | ArtifactError | None] = {}
        self._refused: dict[str, SessionEnded] = {}
        self._fetching = Fetching(
            announce,
            locks=None if settings.use_locks and not settings.generate_artifacts else {},
            only_local=settings.use_only_local,
            programs=settings.exported_programs,
        )
        self._pool: SessionPool

    def run(self, trials: Sequence[Trial], may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Prepares the workloads of all trials; records errors in `failures`.

        Args:
          trials: trials of the run.
          may_go_on: called before each workload; if it returns false, the rest is skipped.
        """
        with (
            temporary_folder("prepare") as folder,
            SessionPool(folder=Path(folder), log_dir=self._settings.log_dir) as self._pool,
        ):
            if self._settings.use_locks and not self._settings.generate_artifacts:
                self._fetching.lock_urls(trial.case for trial in trials)
                for trial in trials:
                    if reason := self._fetching.why_not_published(trial.case):
                        self.failures[trial.case.name] = _without(reason)
            # Locked workloads come first, because their artifacts also serve models of other
            # frameworks.
            ordered = sorted(
                _by_reference(trials), key=lambda trial: not self._fetching.is_locked(trial.case)
            )
            self._fetching.fetch([(trial, self._lacks(trial)) for trial in ordered])
            for trial in ordered:
                if trial.workload.digest not in self.artifacts and may_go_on():
                    self._prepare(trial)
                self._measure_noise(trial)

    def has_tried(self, trial: Trial) -> bool:
        """Returns whether a trial has been prepared, successfully or not."""
        return trial.workload.digest in self.artifacts or trial.case.name in self.failures

    def completed(self, trial: Trial) -> Trial:
        """Returns a trial with the program that it starts from and the noise of its recipe.

        Raises:
          SessionEnded: the program does not exist or is unavailable.
        """
        if trial.case.name in self.failures and self._fetching.why_not_published(trial.case):
            # Do not use the artifacts of another model of the same workload instead.
            raise self.failures[trial.case.name]
        try:
            program = self._fetching.program(trial)
        except ArtifactError as error:
            raise _without(error) from error
        return attrs.evolve(trial, program=program, noise=self.noise_of(trial))

    def noise_of(self, trial: Trial) -> RecipeNoise | None:
        """Returns the noise of a trial's recipe on its workload; None if unknown."""
        return self._noise.get((trial.workload.digest, trial.competitor.rounding))

    def _measure_noise(self, trial: Trial) -> None:
        rounding, artifacts = trial.competitor.rounding, self.artifacts.get(trial.workload.digest)
        key = (trial.workload.digest, rounding)
        framework = trial.case.model.model_impl.framework_type
        if artifacts is None or rounding is None or key in self._noise:
            return
        if (*key, framework) in self._without_noise:
            return
        # Plain runs round no gradients.
        of_gradients = training_of(trial.case) or trains(trial.case)
        if generated_tokens(trial.case) is not None or of_gradients:
            return
        try:
            noise = RecipeNoise.of(
                artifacts, rounding, lambda inputs: self._quantised_run(trial, rounding, inputs)
            )
        except Exception as ended:  # a worker's files may contain anything
            self._pool.empty()
            self._announce(f"{trial}: cannot measure the recipe's noise: {ended}")
            noise = None
        if noise is None:
            self._without_noise.add((*key, framework))
        else:
            self._noise[key] = noise

    def _quantised_run(
        self, trial: Trial, rounding: Rounding, inputs: Sequence[Path]
    ) -> list[Path] | None:
        directory = Path(self._pool.folder) / "quantised"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        answer = self._call(
            QuantisedRun,
            trial,
            truth_of(trial),
            directory,
            rounding=attrs.asdict(rounding),
            inputs=[str(path) for path in inputs],
        )
        return None if answer.files is None else paths_of(answer.files, directory)

    def _prepare(self, trial: Trial) -> None:
        case, workload = trial.case, trial.workload
        if case.name in self.failures:
            return
        if workload.digest in self._refused:
            self.failures[case.name] = self._refused[workload.digest]
            return
        try:
            stored = None if self._settings.generate_artifacts else self._found(trial)
            self.artifacts[workload.digest] = stored or self._generate(trial)
        except SessionEnded as ended:
            self._pool.empty()
            self.failures[case.name] = _with_our_own(ended, case)
        except (ArtifactError, UserInputError, OSError) as error:
            self.failures[case.name] = _without(error)
        except Exception as error:  # a worker's files may contain anything
            self._pool.empty()
            reason = f"the worker's outputs cannot be used: {type(error).__name__}: {error}"
            self.failures[case.name] = _without(reason[:4000])

    def _found(self, trial: Trial) -> WorkloadArtifacts | None:
        """Returns local or locked artifacts; locked ones take precedence."""
        local = self._find(trial)
        if self._fetching.is_locked(trial.case):
            try:
                self._fetching.install_checkpoint(trial)
                if isinstance(local, WorkloadArtifacts) and self._fetching.is_current(local):
                    return local
                if (installed := self._fetching.install(trial)) is not None:
                    return installed
            except (ArtifactError, OSError) as error:
                # A truth generated here must not replace a locked one.
                self._refused[trial.workload.digest] = _without(error)
                raise
        if isinstance(local, ArtifactError):
            raise local
        return local

    def _lacks(self, trial: Trial) -> bool:
        """Returns whether inputs and truth are locked for a trial but not installed."""
        if not self._fetching.is_locked(trial.case):
            return False
        local = self._find(trial)
        return not (isinstance(local, WorkloadArtifacts) and self._fetching.is_current(local))

    def _find(self, trial: Trial) -> WorkloadArtifacts | ArtifactError | None:
        """Returns the artifacts under the root directory, or the error in them; reads them once."""
        digest = trial.workload.digest
        if digest not in self._local:
            try:
                self._local[digest] = workload_store.find(
                    trial.workload, locked=self._fetching.locked
                )
            except ArtifactError as error:
                self._local[digest] = error
        local = self._local[digest]
        if isinstance(local, WorkloadArtifacts) and local.origin is None:
            return local if may_judge(local, trial) else None
        return local

    def _generate(self, trial: Trial) -> WorkloadArtifacts:
        case, workload = trial.case, trial.workload
        if self._settings.use_only_local:
            raise ArtifactError(
                f"no artifacts for {workload.id} in {workload_store.directory_of(workload)}; "
                "run without --no-download, or with --generate-artifacts"
            )
        truth = truth_of(trial)
        self._announce(f"inputs and truth for {workload.label}")
        with workload_store.new_directory(workload) as directory:
            try:
                answer = self._generated(trial, truth, directory, second=True)
            except SessionEnded as ended:
                if ended.phase != "second_reference":
                    raise
                # If a model fails on a second input, verify it on the first input only.
                self._pool.empty()
                workload_store.remove_second(directory)
                answer = self._generated(trial, truth, directory, second=False)
                reason = f"{ended.status.value}: {ended.reason}"
                answer = msgspec.structs.replace(answer, without_second=reason)
            _check_outputs(case, answer.files.reference)
            if answer.remark:
                self._announce(f"{workload.label}: the truth is not exact: {answer.remark}")
            if answer.without_neighbours:
                self._announce(
                    f"{workload.label}: integers and small outputs are verified without runs on "
                    f"slightly different weights: {answer.without_neighbours}"
                )
            if (peak := answer.host_memory_peak_bytes or 0) >= _MEMORY_WORTH_TELLING:
                self._announce(f"{workload.label} used up to {peak / 2**30:.1f} GiB of memory")
            without_second = answer.without_second or _why_not_judged_by(directory, trial)
            not_ranked = None
            if training_of(case) is None:
                rules = FURTHER_RULES if answer.takes_further else ()
                without_second, not_ranked = self._try_further(
                    trial, truth, directory, without_second, answer, attempts=len(rules)
                )
            without_float64 = (
                why_plugin(truth.source),
                answer.without_float64,
                answer.remark and f"the truth is not exact: {answer.remark}",
            )
            return workload_store.publish(
                directory,
                workload=workload,
                case=case,
                versions=answer.versions,
                cost=answer.cost,
                without_second=without_second,
                without_float64="; ".join(filter(None, without_float64)) or None,
                truth_source=truth.source,
                not_ranked=not_ranked,
                truth_check=answer.truth_check,
                truth_remark=answer.remark,
            )

    def _try_further(
        self,
        trial: Trial,
        truth: Truth,
        directory: Path,
        without_second: str | None,
        first_answer: Prepared,
        *,
        attempts: int,
    ) -> tuple[str | None, str | None]:
        """Tries inputs until one changes every output; keeps the one that changes most.

        Not needed for training steps, which change the weights and thereby all later outputs.

        Returns:
          The outputs that are verified on one input only, and why the model is not ranked.
        """
        first = workload_store.due_in(directory, prefix="")
        parameters = trial.case.verify_parameters
        best = None
        if without_second is None:
            best = changes(first, workload_store.due_in(directory), parameters)
        for attempt in range(attempts if first.inputs else 0):
            if best is not None and best.complete:
                break
            try:
                answer = self._call(
                    FurtherPrepared,
                    trial,
                    truth,
                    directory,
                    attempt=attempt,
                    generates=generated_tokens(trial.case) is not None,
                )
            except SessionEnded:
                self._pool.empty()
                workload_store.remove_second(directory, FURTHER)
                break
            further = workload_store.due_in(directory, FURTHER)
            # The truth of another input must not be weaker.
            is_float64 = answer.without_float64 is None or first_answer.without_float64 is not None
            passes = further.inputs and Judge(trial, further).verify(further.reference).passed
            if passes and is_float64:
                changed = changes(first, further, parameters)
                if best is None or changed.count > best.count:
                    workload_store.replace_second(directory)
                    best = changed.after(best)
                else:
                    best = best.after(changed)
            workload_store.remove_second(directory, FURTHER)
        if best is None:
            return without_second, None
        return best.remark or best.not_ranked, best.not_ranked

    def _generated(self, trial: Trial, truth: Truth, directory: Path, *, second: bool) -> Prepared:
        """Generates the artifacts of a trial's workload in a directory, in a worker."""
        case = trial.case
        return self._call(
            Prepared,
            trial,
            truth,
            directory,
            input_data=case.input_data.name,
            input_files=_input_files(case),
            generates=generated_tokens(case) is not None,
            second=second,
            packages=recorded_packages(),
        )

    def _call(
        self, kind: type[A], trial: Trial, truth: Truth, directory: Path, **arguments: Any
    ) -> A:
        """Sends a command on a trial's model to a worker, and returns its answer."""
        backend, environment, model = truth.backend, truth.environment, trial.case.model
        # Models that can share a process are prepared by one worker per framework.
        name = f"prepare-{backend.name}{f'-{environment.name}' if environment else ''}"
        # A module of another package may change the framework, and with it the truths of others.
        name += model.own_process_suffix or _module_suffix(trial)
        session = self._pool.get(name, self._settings.for_truth(), backend, environment)
        return session.call(
            kind,
            module_path=model.model_impl.module_path,
            parameters=dict(model.model_parameters),
            reference=truth.reference,
            directory=str(directory),
            **arguments,
        )


def _without(reason: object) -> SessionEnded:
    """Returns the end of trials without artifacts."""
    return SessionEnded(Status.FAILED, "artifacts", str(reason))


def _why_not_judged_by(directory: Path, trial: Trial) -> str | None:
    """Returns why outputs on the second input cannot be verified, and removes it; else None.

    True if even the reference fails: an output without signal, or one that is not a number.
    """
    second = workload_store.due_in(directory)
    verdict = Judge(trial, second).verify(second.reference)
    if verdict.passed:
        return None
    workload_store.remove_second(directory)
    return f"outputs for a second input cannot be verified: {verdict.reason}"


def _by_reference(trials: Sequence[Trial]) -> list[Trial]:
    """Returns the trials grouped by framework, so that one worker serves each framework.

    Frameworks with the fastest op-by-op runs come first and generate shared artifacts. Models and
    references of other packages come last, because they must not judge ours.
    """

    def place(trial: Trial) -> tuple[bool, int, str]:
        framework = trial.case.model.model_impl.framework_type
        return is_foreign(trial), (*_QUICK_FIRST, framework).index(framework), _module_suffix(trial)

    return sorted(trials, key=place)


def _module_suffix(trial: Trial) -> str:
    """Returns the end of the name of a worker for a module of another package; empty for ours."""
    implementation = trial.case.model.model_impl
    named = f"-{implementation.module_path}-{implementation.reference or ''}"
    return named if is_foreign(trial) else ""


def _input_files(case: BenchmarkCase) -> list[str]:
    """Returns the user's input files; empty if the model generates its inputs.

    Raises:
      UserInputError: the files have changed since the case was created.
    """
    data = case.input_data
    if data.content_sha256 is None:
        return []
    directory = Path(data.source_url)
    if array_files.read_user_inputs(directory).sha256 != data.content_sha256:
        raise UserInputError(f"the inputs in {directory} have changed since the case was created")
    return [str(path) for path in array_files.user_input_files(directory)]


def _check_outputs(case: BenchmarkCase, files: Sequence[SavedArray]) -> None:
    """Raises `SessionEnded` if a model's outputs differ from what its architecture declares."""
    implementation = case.model.model_impl
    if implementation.architecture is None:
        return
    architecture = architectures.get(implementation.architecture)
    due = list(architecture.output_specs(case.model.model_parameters))
    got = [TensorSpec(shape=file.shape, dtype=file.dtype) for file in files]
    if got != due:
        raise SessionEnded(
            Status.WRONG_OUTPUT,
            "reference",
            f"the model returned {', '.join(map(str, got))}, but {architecture.name} declares "
            f"{', '.join(map(str, due))}",
        )


def _with_our_own(ended: SessionEnded, case: BenchmarkCase) -> SessionEnded:
    """Adds a hint if the suite has a model of the same name as a checkout's that cannot run."""
    is_in_tree = case.model.model_impl.module_path == IN_TREE
    if not is_in_tree or ended.status is not Status.UNSUPPORTED:
        return ended
    if case.name not in {own.name for own in catalog.all_benchmarks()}:
        return ended
    reason = f"{ended.reason}; omit --suite-dir to run the built-in model of this name"
    return SessionEnded(ended.status, ended.phase, reason, ended.report)
