"""Phones."""

from openxla.benchmark.def_types import DeviceSpec


def _pixel(generation: int, architecture: str, cores: int) -> DeviceSpec:
    return DeviceSpec(
        name=f"pixel-{generation}-pro",
        host_type="mobile",
        host_model=f"pixel-{generation}-pro",
        host_environment="android",
        accelerator_type="cpu",
        accelerator_model=architecture,
        accelerator_architecture=architecture,
        accelerator_attributes={"num_of_cores": cores},
    )


PIXEL_6_PRO = _pixel(6, "armv8.2-a", cores=8)
PIXEL_8_PRO = _pixel(8, "armv9-a", cores=9)
