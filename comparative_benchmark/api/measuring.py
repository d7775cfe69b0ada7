"""Executes requests, for the command line and the Python API."""

import os
import shlex
from collections.abc import Callable, Sequence

import attrs

from comparative_benchmark.analysis.machine import nvml
from comparative_benchmark.analysis.stats.analysis import DECISIVE_PROCESSES
from comparative_benchmark.analysis.stats.planning import CompileOnly, FixedCounts, SamplingRule
from comparative_benchmark.api import case_selection
from comparative_benchmark.api.case_selection import (
    Selection,
    definitions_to_save,
    user_model_cases,
)
from comparative_benchmark.backends.api import origin_of
from comparative_benchmark.engine import runner
from comparative_benchmark.engine.settings import (
    RunSettings,
    UnusableEnvironmentError,
    parse_environments,
    settings_of,
)
from comparative_benchmark.engine.trial import (
    ALL_BACKENDS,
    Competitor,
    Trial,
    in_environments,
    installed_competitors,
    parse_competitors,
)
from comparative_benchmark.errors import UsageError, check_place
from comparative_benchmark.request import (
    ITERATIONS,
    WARMUP_ITERATIONS,
    RunRequest,
    default_of,
    options,
)
from comparative_benchmark.results.comparing.compare import DEFAULT_BASELINE, competitor_among
from comparative_benchmark.results.record import Result, Status
from comparative_benchmark.results.results_file import ResultsFile
from comparative_benchmark.sources.selection import find_device, select
from comparative_benchmark.terminal import run_summary, subjects
from comparative_benchmark.terminal.quiet_machine import wait_for_quiet
from comparative_benchmark.terminal.status import duration
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec
from openxla.benchmark.installation import set_root
from openxla.benchmark.user_models import Definitions, UserModelError

# Start, compilation, warm-up and rounds of models of 1 ms and of 100 ms, measured on two cores.
_SECONDS_PER_PROCESS = (8.0, 20.0)
_SHORT_S = 180.0
_QUICK_COUNTS = (3, 20)


@attrs.frozen(kw_only=True)
class Measured:
    """A finished run.

    Attributes:
      results: results of all selected trials, including those measured by earlier runs.
      absent: message with the backends that `all` does not include; may be empty.
      left_out: number of selected trials without results, because the budget ran out.
      settings: settings of the run.
      baseline: competitor that is the baseline of ratios; None for no ratios.
      remarks: lines to print below the results.
    """

    results: Sequence[Result]
    settings: RunSettings
    baseline: str | None
    left_out: int = 0
    absent: str = ""
    remarks: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class PlannedRun:
    """A run that has not started.

    Attributes:
      trials: trials in execution order.
      selection: the cases, with hooks of the command that selected them.
      settings, baseline, absent: see `Measured`.
    """

    trials: Sequence[Trial]
    selection: Selection
    settings: RunSettings
    baseline: str | None
    absent: str


def plan_run(
    request: RunRequest, report: Callable[[str], None], *, selection: Selection | None = None
) -> PlannedRun:
    """Resolves a request to the trials of a run; measures nothing and writes no results.

    Args:
      request: what to run, and how.
      report: called with lines about competitors that will not run.
      selection: what to run; None for the cases selected by the request.

    Raises:
      UsageError: fields of the request contradict each other or this machine.
      DefinitionError, NoMatchError: see `sources.selection.select`.
    """
    set_root(request.root_dir)
    request = case_selection.with_backends(request, chosen=selection is not None)
    check_place(request.output, "-o")
    device = find_device(request.device)
    try:
        competitors = _competitors(request, device)
    except UnusableEnvironmentError as error:
        raise UsageError(f"--env {error}") from error
    chosen = selection or selected(request)
    plan = runner.plan(chosen.cases, competitors, device)
    baseline = _baseline(request, competitors, plan.idle)
    settings = attrs.evolve(
        _settings(request, device, baseline),
        share_workers=chosen.share_workers or request.share_workers,
    )
    absent = _left_out(request, device, chosen.cases)
    if absent:
        report(absent)
    for competitor in plan.idle:
        report(f"{competitor} supports none of the selected cases")
    if not plan.trials:
        raise UsageError("nothing to run: no selected backend supports any selected case")
    if settings.in_process:
        _check_one_process(plan.trials)
    trials = _with_device(chosen.admitted(plan.trials, settings))
    return PlannedRun(
        trials=trials, selection=chosen, settings=settings, baseline=baseline, absent=absent
    )


def _with_device(trials: Sequence[Trial]) -> list[Trial]:
    """Returns the trials; refuses those for a missing GPU before any preparation.

    Backends of other packages may support GPUs that are unknown here.
    """

    def lacks_gpu(trial: Trial) -> bool:
        # A backend that is not installed has another reason.
        competitor = trial.competitor
        origin = origin_of(competitor.backend)
        return (
            trial.refused is None
            and trial.device.accelerator_type == "gpu"
            and origin is not None
            and origin.built_in
            and competitor.compiler.accelerator in (None, "gpu")
            and competitor.is_installed
        )

    if not any(map(lacks_gpu, trials)) or (reason := nvml.why_no_gpu()) is None:
        return list(trials)
    return [
        attrs.evolve(
            trial,
            refused=f"{trial.device.name}: {reason}; check `nvidia-smi`, or choose another device, "
            "such as -device host-cpu",
        )
        if lacks_gpu(trial)
        else trial
        for trial in trials
    ]


def measure(
    request: RunRequest,
    observer: runner.Observer,
    *,
    command: Sequence[str],
    selection: Selection | None = None,
    ask: Callable[[str], str] | None = None,
) -> Measured:
    """Runs the trials selected by a request; results go to `request.output`.

    Args:
      request: what to run, and how.
      observer: receives progress.
      command: the user's command line, stored with the results.
      selection: what to run; None for the cases selected by the request.
      ask: see `wait_for_quiet`.

    Raises:
      UsageError: see `plan_run`; or the results file cannot be written.
      DefinitionError, NoMatchError: see `sources.selection.select`.
    """
    planned = plan_run(request, observer.say, selection=selection)
    for line in planned.selection.before(planned.trials, planned.settings):
        observer.say(line)
    tried = [trial for trial in planned.trials if trial.refused is None]
    if outlook := _outlook(tried, planned.settings):
        observer.say(outlook)
    if tried and isinstance(planned.settings.sampling, SamplingRule):
        wait_for_quiet(observer.say, ask=ask)
    results = runner.execute(
        planned.trials,
        planned.settings,
        ResultsFile(request.output),
        observer,
        command=command,
        resume=request.resume,
    )
    return Measured(
        results=results,
        settings=planned.settings,
        baseline=planned.baseline,
        left_out=len(planned.trials) - len(results),
        absent=planned.absent,
        remarks=list(planned.selection.after(results)),
    )


def _outlook(trials: Sequence[Trial], settings: RunSettings) -> str:
    """Returns a message about the work in a long race; empty for a short one."""
    rule = settings.sampling
    if not isinstance(rule, SamplingRule) or settings.budget_s is not None:
        return ""
    processes = rule.min_processes * len(trials)
    fast_s, slow_s = (processes * each_s for each_s in _SECONDS_PER_PROCESS)
    if fast_s < _SHORT_S:
        return ""
    workloads = len({trial.workload.digest for trial in trials})
    competitors = len({str(trial.competitor) for trial in trials})
    return (
        f"workloads: {workloads}, competitors: {competitors}, processes: {processes} or more; "
        f"takes {duration(fast_s)} with models of 1 ms, {duration(slow_s)} with models of 100 ms "
        "(--dry-run lists the trials, --quick runs each once)"
    )


def selected(request: RunRequest) -> Selection:
    """Returns the selection of a request: TorchBench folders, the user's model, or the catalogue.

    Raises:
      UsageError: an option of the request is invalid.
      DefinitionError, NoMatchError: see `sources.selection.select`.
    """
    subjects.check(request)
    if folders := case_selection.folder_cases(request):
        return folders
    if brought := user_model_cases(request):
        return Selection(
            cases=brought.cases,
            before=lambda *_: brought.remarks,
            after=_saving(definitions_to_save(request, brought)),
        )
    cases = select(
        request.name,
        test=request.test,
        tags=request.tag,
        framework=request.framework,
        suites=request.suites,
    )
    if request.inputs is None:
        return Selection(cases=cases)
    try:
        given = array_files.read_user_inputs(request.inputs)
        return Selection(cases=array_files.cases_with(cases, given))
    except array_files.UserInputError as error:
        raise UsageError(f"--inputs: {error}") from error


def _saving(definitions: Definitions | None) -> Callable[[Sequence[Result]], list[str]]:
    """Returns a hook that writes definitions once their cases have been run."""

    def save(results: Sequence[Result]) -> list[str]:
        if definitions is None:
            return []
        if all(result.status is not Status.OK for result in results):
            return [f"not saved as {definitions.file}: no competitor had a correct output"]
        try:
            definitions.write()
        except (OSError, UserModelError) as error:  # keep the measurements
            return [f"not saved as {definitions.file}: {error}"]
        folder = shlex.quote(os.path.relpath(definitions.file.parent))
        saved = f"saved: {definitions.file} (rerun: cbs run --suite-dir {folder})"
        return [saved, *filter(None, [definitions.remark])]

    return save


def _baseline(
    request: RunRequest, competitors: Sequence[Competitor], idle: Sequence[Competitor]
) -> str | None:
    """Returns the baseline of ratios: the requested one, or eager, or the first competitor.

    Without a request, fixed counts have no baseline, because one process each supports no
    verdict, and only installed competitors that support a selected case are considered.
    """
    names = [str(competitor) for competitor in competitors]
    baseline: str | None = request.baseline and competitor_among(request.baseline, names)
    raced = isinstance(sampling(request), SamplingRule)
    installed = [str(one) for one in competitors if one.is_installed and one not in idle]
    if baseline or len(installed) < 2 or not raced:
        return baseline
    return DEFAULT_BASELINE if DEFAULT_BASELINE in installed else installed[0]


def _check_one_process(trials: Sequence[Trial]) -> None:
    """Raises `UsageError` if models that need separate processes would share one."""
    models = {trial.case.model.own_process_suffix: trial.case.model.name for trial in trials}
    if len(models) > 1:
        names = ", ".join(sorted(models.values()))
        raise UsageError(
            f"these models cannot share a process: {names}; select one of them, or omit "
            "--run-in-process"
        )


def _competitors(request: RunRequest, device: DeviceSpec) -> list[Competitor]:
    accelerator = device.accelerator_type
    environments = parse_environments(request.env) if request.env is not None else []
    if environments and request.run_in_process:
        raise UsageError("--env needs worker processes; omit --run-in-process")
    return in_environments(parse_competitors(",".join(request.backends), accelerator), environments)


def _left_out(request: RunRequest, device: DeviceSpec, cases: Sequence[BenchmarkCase]) -> str:
    """Returns a message with the backends that support a case but are not part of `all`, or ""."""
    if ALL_BACKENDS not in request.backends:
        return ""
    models = [case.model for case in cases]
    _, absent = installed_competitors(device.accelerator_type, models=models)
    return run_summary.line(absent)


def _settings(request: RunRequest, device: DeviceSpec, baseline: str | None) -> RunSettings:
    return settings_of(
        device,
        timeout_s=request.timeout,
        memory_bytes=request.memory_limit,
        threads=request.threads,
        phase_deadlines_s=request.deadline,
        cpus=_cpus(request),
        sampling=sampling(request),
        baseline=baseline,
        log_dir=request.output.absolute().with_suffix(".logs"),
        budget_s=request.budget,
        profile=request.profile,
        profile_dir=request.output.absolute().with_suffix(".profiles"),
        generate_artifacts=request.generate_artifacts,
        use_only_local=request.no_download and not request.generate_artifacts,
        exported_programs=request.exported_programs,
        in_process=request.run_in_process,
        outputs=request.outputs,
        inherit_environment=request.inherit_environment,
    )


def _cpus(request: RunRequest) -> tuple[int, ...]:
    """Returns the CPUs to pin workers to; empty if none were given."""
    usable = os.sched_getaffinity(0)
    if lacking := [cpu for cpu in request.cpus if cpu not in usable]:
        raise UsageError(
            f"--cpus: this process cannot use {', '.join(map(str, lacking))}; "
            f"choose from {', '.join(map(str, sorted(usable)))}"
        )
    if request.cpus and request.run_in_process:
        raise UsageError("--cpus pins worker processes; omit --run-in-process")
    return request.cpus


def sampling(request: RunRequest) -> CompileOnly | FixedCounts | SamplingRule:
    """Returns the sampling rule: compile-only, fixed counts if any were given, or a race.

    Raises:
      UsageError: options exclude each other.
    """
    counts = (request.warmup_iterations, request.iterations)
    if request.quick:
        if counts != (None, None) or request.compile_only or request.processes:
            raise UsageError(
                "--quick cannot be combined with -w, -iter, --processes or --compile-only"
            )
        counts = _QUICK_COUNTS
    if request.compile_only:
        if counts != (None, None) or request.run_in_process or request.profile:
            raise UsageError(
                "--compile-only cannot be combined with -w, -iter, --profile or --run-in-process"
            )
        return CompileOnly(pairs=request.processes or DECISIVE_PROCESSES, seed=request.seed)
    if counts != (None, None):
        for name in ("precision", "effect", "trial_budget", "seed"):
            if getattr(request, name) != default_of(options()[name][0]):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} cannot be combined with --quick, -w or -iter")
        if (request.processes or 1) > 1:
            raise UsageError(
                "--processes cannot be combined with -w or -iter, which measure one process"
            )
        warmup, iterations = counts
        return FixedCounts(
            warmup_iterations=WARMUP_ITERATIONS if warmup is None else warmup,
            iterations=ITERATIONS if iterations is None else iterations,
        )
    processes = request.processes
    return SamplingRule(
        goal=request.precision,
        effect=request.effect,
        min_processes=processes or 3,
        max_processes=processes or 10,
        trial_budget_s=request.trial_budget,
        seed=request.seed,
    )
