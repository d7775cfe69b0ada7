"""Refuses training that cannot fit into memory, before anything is made of it."""

from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trial import Trial
from openxla.benchmark.artifacts import workload_store
from openxla.benchmark.models import architectures
from openxla.benchmark.training import size
from openxla.benchmark.workloads import training_of


def why_too_large(trial: Trial, settings: RunSettings) -> str | None:
    """Returns why a training case cannot fit into a worker's memory; None if it may.

    The truth counts where it is still to be made, which is always done on the host.
    """
    name = trial.case.model.model_impl.architecture
    if name is None or training_of(trial.case) is None:
        return None
    parameters = architectures.get(name).complete(trial.case.model.model_parameters)
    on_host = trial.device.accelerator_type == "cpu"
    needs = {"its steps": size.step_bytes(parameters)} if on_host else {}
    if not workload_store.directory_of(trial.workload).exists():
        needs["the float64 truth of its steps"] = size.truth_bytes(parameters)
    what, needed = max(needs.items(), key=lambda item: item[1], default=("", 0))
    limit = settings.limits.memory_bytes
    if needed <= limit:
        return None
    return (
        f"{what} would need at least {needed / 2**30:.1f} GiB of memory "
        f"({size.weights_of(parameters) / 1e6:.0f} M weights, batch {parameters['batch_size']}), "
        f"of {limit / 2**30:.1f} GiB: take a smaller batch, or raise --memory-limit"
    )
