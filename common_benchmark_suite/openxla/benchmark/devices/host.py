"""The local machine."""

from openxla.benchmark.def_types import DeviceSpec


def _host(kind: str) -> DeviceSpec:
    return DeviceSpec(
        name=f"host-{kind}",
        host_type="host",
        host_model="unknown",
        host_environment="unknown",
        accelerator_type=kind,
        accelerator_model="unknown",
        accelerator_architecture="unknown",
    )


HOST_CPU = _host("cpu")
HOST_GPU = _host("gpu")
