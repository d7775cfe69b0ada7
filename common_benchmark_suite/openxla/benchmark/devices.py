"""The devices on which cases run.

`host-cpu` and `host-gpu` are the local machine; the others are specific machines, to distinguish
their results.
"""

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


def _c2_standard(size: int, cores: int) -> DeviceSpec:
    return DeviceSpec(
        name=f"c2-standard-{size}",
        host_type="gcp",
        host_model=f"c2-standard-{size}",
        host_environment="linux-x86_64",
        accelerator_type="cpu",
        accelerator_model="intel-cascadelake",
        accelerator_architecture="x86_64-cascadelake",
        accelerator_attributes={"num_of_cores": cores},
    )


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


# Machines of Google Cloud, with the OpenXLA suite's core counts: 16 for the small machine, 30
# physical ones for the large one.
A2_HIGHGPU_1G = DeviceSpec(
    name="a2-highgpu-1g",
    host_type="gcp",
    host_model="a2-highgpu-1g",
    host_environment="linux-x86_64",
    accelerator_type="gpu",
    accelerator_model="nvidia-a100",
    accelerator_architecture="ampere",
    accelerator_attributes={"num_of_gpus": 1},
)
C2_STANDARD_16 = _c2_standard(16, cores=16)
C2_STANDARD_60 = _c2_standard(60, cores=30)

# The local machine.
HOST_CPU = _host("cpu")
HOST_GPU = _host("gpu")

# Phones.
PIXEL_6_PRO = _pixel(6, "armv8.2-a", cores=8)
PIXEL_8_PRO = _pixel(8, "armv9-a", cores=9)

ALL_DEVICES: tuple[DeviceSpec, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, DeviceSpec)
)
