"""The matrix products that a model runs, and their share of its latency."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

import attrs

from comparative_benchmark.engine.details import call_once
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Result, Status
from comparative_benchmark.studies.micro.shapes import Shape
from openxla.benchmark import devices
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.comparative_suite.operator_cases import model_name
from openxla.benchmark.def_types import BenchmarkCase, ModelFrameworkType
from openxla.benchmark.workloads import workload_of

_PRODUCTS = "comparative_benchmark.pt_inductor.cost:products"


@attrs.frozen(kw_only=True)
class Products:
    """Matrix products of a workload.

    Attributes:
      cases: cases of the workload, in each framework.
      counts: number of calls of each product.
    """

    cases: tuple[BenchmarkCase, ...]
    counts: Mapping[Shape, int]

    @property
    def data_type(self) -> str:
        """Data type of the workload."""
        return self.cases[0].data_type or "fp32"


def products_of(name: str, suites: Sequence[str] = ()) -> Products:
    """Returns the matrix products of the workload of a PyTorch case.

    Args:
      name: regular expression for the whole name of the case.
      suites: modules with additional cases.

    Raises:
      UsageError: the name does not match exactly one workload with a PyTorch case, or its products
        cannot be counted.
    """
    every = catalog.all_benchmarks(suites)
    chosen = catalog.select(every, name=name)
    digests = {workload_of(case).digest for case in chosen}
    if len(digests) != 1:
        raise UsageError(f"--from-model {name!r} matches {len(digests)} workloads; expected one")
    cases = tuple(case for case in every if workload_of(case).digest in digests)
    pytorch = [c for c in cases if c.model.model_impl.framework_type is ModelFrameworkType.PYTORCH]
    if not pytorch:
        raise UsageError(f"--from-model {name!r} has no PyTorch case to read shapes from")
    shapes = {Shape(m, k, n): count for m, k, n, count in _counted(pytorch[0])}
    if not shapes:
        raise UsageError(f"--from-model {name!r} runs no matrix product")
    return Products(cases=cases, counts=shapes)


def _counted(case: BenchmarkCase) -> list[list[int]]:
    arguments = {
        "module_path": case.model.model_impl.module_path,
        "parameters": dict(case.model.model_parameters),
    }
    try:
        settings = RunSettings(device=devices.HOST_CPU)
        return call_once(settings, _PRODUCTS, arguments, list[list[int]])
    except SessionEnded as ended:
        raise UsageError(
            f"cannot count the products of {case.model.name}: {ended.reason}"
        ) from ended


def explained(found: Products, operator: str, results: Sequence[Result]) -> Iterator[str]:
    """Yields for each competitor the share of the model's latency spent in its products.

    Each product is measured alone, with operands still in the caches. In the model, other operators
    use the caches, and a compiler may fuse products with others. So a share above 1 is possible.
    """
    times = {
        (Case(result=result).competitor, result.definition.model): result.measured.latencies_ms
        for result in results
        if result.status is Status.OK
    }
    medians = {place: statistics.median(samples) for place, samples in times.items() if samples}
    for case in found.cases:
        framework = case.model.model_impl.framework_type
        names = {
            shape: model_name(operator, found.data_type, framework, shape) for shape in found.counts
        }
        for competitor, model in list(medians):
            parts = [medians.get((competitor, name)) for name in names.values()]
            if model != case.model.name or None in parts:
                continue
            total = sum(
                count * medians[competitor, names[shape]] for shape, count in found.counts.items()
            )
            yield (
                f"{competitor} ({framework.value}): {sum(found.counts.values())} products take "
                f"{total:.3g} ms alone, {total / medians[competitor, model]:.0%} of the "
                f"{medians[competitor, model]:.3g} ms of {model}"
            )
