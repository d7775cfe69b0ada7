"""Results paired with their runs, as readers of results files use them, and their settings.

Settings are the environment variables of workers that change speed or numbers, and the effective
settings of the processes: threads, denormals, allocator, BLAS, CPUs, handling of outputs.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import attrs
from msgspec import UNSET

from comparative_benchmark.analysis.machine.worker_settings import EffectiveSettings
from comparative_benchmark.results.fleet import Allocation
from comparative_benchmark.results.record import Document, Host, Metrics, Result, Run, Status


def setting_differences(old: Metrics, new: Metrics) -> Iterator[str]:
    """Yields descriptions of differing settings, among those that both results record."""
    for before, after in zip(settings(old), settings(new), strict=True):
        if before is None or after is None:
            continue
        for name in sorted(before.keys() | after.keys()):
            values = [side.get(name, "unset") for side in (before, after)]
            if values[0] != values[1]:
                yield f"{name} {values[0]} vs {values[1]}"


def settings(metrics: Metrics) -> tuple[Mapping[str, str] | None, ...]:
    """Returns environment variables, effective settings and handling of outputs, by name.

    Each is None if the result does not record it.
    """
    outputs = metrics.program.outputs
    return (
        None if metrics.variables is UNSET else metrics.variables,
        _effective(metrics),
        None if outputs is None else {"outputs": outputs},
    )


def _effective(metrics: Metrics) -> Mapping[str, str] | None:
    """Returns the combined settings of all processes; None if no process recorded them."""
    settings = [_named(p.effective) for p in metrics.processes or () if p.effective is not None]
    if not settings:
        return None
    # Join the values of processes that differ.
    return {name: " or ".join(sorted({one[name] for one in settings})) for name in settings[0]}


def _named(settings: EffectiveSettings) -> dict[str, str]:
    before, after = settings.denormals_before, settings.denormals_after
    return {
        "effective threads": str(settings.threads),
        "effective inter-op threads": str(settings.inter_op_threads),
        "denormals": str(before if before == after else f"{before}, then {after}"),
        "allocator": str(settings.allocator),
        "BLAS": "; ".join(settings.blas) or "unknown",
        "worker CPUs": str(len(settings.affinity)),
    }


LATENCY, COLD_COMPILE = "latency", "cold compile"
UNKNOWN = "unknown"


@attrs.frozen(kw_only=True)
class Case:
    """A result and its run; the run is None if the file does not contain it."""

    result: Result
    run: Run | None = None

    @property
    def workload(self) -> str:
        """Digest of the workload."""
        return self.result.definition.workload.digest

    @property
    def label(self) -> str:
        """The workload's display name."""
        return self.result.definition.workload.label

    @property
    def data_type(self) -> str:
        """Precision of the computation if the program is quantised, else the model's data type."""
        definition = self.result.definition
        data_type = definition.precision or definition.data_type or definition.workload.data_type
        return data_type or UNKNOWN

    @property
    def is_recipe(self) -> bool:
        """Whether values or weights have a lower precision than in the workload."""
        definition = self.result.definition
        own = definition.data_type or definition.workload.data_type
        return definition.precision not in (None, own)

    @property
    def competitor(self) -> str:
        """`backend:compiler`, or `backend:compiler@name` if it ran in a named environment."""
        return self.result.definition.competitor

    @property
    def framework(self) -> str:
        """Framework of the model, in lower case."""
        return self.result.definition.framework_name

    @property
    def device(self) -> str:
        """Name of the device; of a fleet's machine, with its node and class."""
        return self.result.definition.device + self.place

    @property
    def place(self) -> str:
        """End of a name, with node and class; empty if no fleet ran the case."""
        where = self.allocation
        return f" on {where.node} ({where.machine_class})" if where else ""

    @property
    def allocation(self) -> Allocation | None:
        """Where a fleet ran the case; None if no fleet did."""
        return (self.run.allocation or None) if self.run else None

    @property
    def status(self) -> Status:
        """Status of the trial."""
        return self.result.status

    @property
    def why(self) -> str:
        """Status, phase and reason in one sentence."""
        phase = f" in {self.result.phase}" if self.result.phase else ""
        reason = f": {self.result.reason}" if self.result.reason else ""
        return f"{self.result.status.value}{phase}{reason}"

    @property
    def metrics(self) -> Metrics:
        """All metrics, at whichever level they were recorded."""
        return self.result.measured

    @property
    def quantity(self) -> str:
        """The measured quantity: `LATENCY`, or `COLD_COMPILE` for a compile-only result."""
        return COLD_COMPILE if self.metrics.compile_only else LATENCY

    @property
    def key(self) -> Hashable:
        """Key that distinguishes this case from others."""
        return (self.workload, *self.runner, self.quantity)

    @property
    def runner(self) -> tuple[str, str, str]:
        """Competitor fields that identify what ran the case."""
        return (self.competitor, self.framework, self.device)

    @property
    def host(self) -> Host | None:
        """The machine; None if the run is unknown."""
        return self.run.execution_environment.host if self.run else None

    @property
    def machine(self) -> str:
        """CPU model of the machine; its architecture or `unknown` if the model was not recorded."""
        host = self.host
        return (host.cpu_model or host.architecture if host else "") or UNKNOWN

    @property
    def threads(self) -> int | None:
        """Number of threads per worker."""
        return self.host.threads if self.host else None

    @property
    def started(self) -> datetime.datetime | None:
        """Start time of the run."""
        return self.run.trigger.time if self.run else None

    @property
    def revision(self) -> str | None:
        """Revision of the harness."""
        return self.run.execution_environment.git_revision if self.run else None

    @property
    def python(self) -> str | None:
        """Python version of the workers."""
        if self.run is None:
            return None
        around, environment = self.run.execution_environment, self.result.definition.environment
        if environment is None:
            return around.host.python
        other = around.environments.get(environment.name)
        return (other.python_version or None) if other else None


def cases_of(document: Document) -> list[Case]:
    """Returns all results of a file with their runs, in order."""
    runs = {run.run_id: run for run in document.runs}
    return [Case(result=result, run=runs.get(result.run_id)) for result in document.benchmarks]


def latest(cases: Iterable[Case]) -> list[Case]:
    """Returns the latest result of each case, in order of first appearance."""
    return list({case.key: case for case in cases}.values())


def matched(before: Sequence[Case], after: Sequence[Case]) -> list[tuple[Case | None, Case | None]]:
    """Pairs up cases, in the baseline's order; None stands for a case missing on one side."""
    rules: list[Callable[[Case], Hashable]] = [
        lambda case: case.key,
        lambda case: (case.result.definition.benchmark_name, *case.runner),
        lambda case: (
            case.result.definition.workload.architecture,
            case.result.definition.batch_size,
            *case.runner,
        ),
    ]
    partner: dict[int, Case] = {}
    left, right = list(before), list(after)
    for rule in rules:
        counts = [Counter(map(rule, side)) for side in (left, right)]
        by_rule = {rule(case): case for case in right}
        for case in left:
            name = rule(case)
            # Pair only unambiguous names.
            if counts[0][name] == counts[1][name] == 1:
                partner[id(case)] = by_rule[name]
        taken = {id(case) for case in partner.values()}
        left = [case for case in left if id(case) not in partner]
        right = [case for case in right if id(case) not in taken]
    paired = [(case, partner.get(id(case))) for case in before]
    return [*paired, *((None, case) for case in right)]
