"""Machines of Google Cloud."""

from openxla.benchmark.def_types import DeviceSpec

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


# The OpenXLA suite's core counts: 16 for the small machine, 30 physical ones for the large one.
C2_STANDARD_16 = _c2_standard(16, cores=16)
C2_STANDARD_60 = _c2_standard(60, cores=30)
