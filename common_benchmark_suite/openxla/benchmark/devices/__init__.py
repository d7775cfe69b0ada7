"""The devices on which cases run.

`host-cpu` and `host-gpu` are the local machine; the others are specific machines, to distinguish
their results.
"""

from openxla.benchmark.def_types import DeviceSpec
from openxla.benchmark.devices.gcp import A2_HIGHGPU_1G, C2_STANDARD_16, C2_STANDARD_60
from openxla.benchmark.devices.host import HOST_CPU, HOST_GPU
from openxla.benchmark.devices.mobile import PIXEL_6_PRO, PIXEL_8_PRO

ALL_DEVICES: tuple[DeviceSpec, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, DeviceSpec)
)

__all__ = [
    "A2_HIGHGPU_1G",
    "ALL_DEVICES",
    "C2_STANDARD_16",
    "C2_STANDARD_60",
    "HOST_CPU",
    "HOST_GPU",
    "PIXEL_6_PRO",
    "PIXEL_8_PRO",
]
