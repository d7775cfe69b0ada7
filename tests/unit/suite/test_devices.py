"""Device records have the facts in the OpenXLA suite's results."""

import pytest

from openxla.benchmark import devices

FACTS = {
    "host-cpu": ("host", "unknown", "unknown", "cpu", "unknown", "unknown", {}),
    "host-gpu": ("host", "unknown", "unknown", "gpu", "unknown", "unknown", {}),
    "a2-highgpu-1g": (
        *("gcp", "a2-highgpu-1g", "linux-x86_64", "gpu", "nvidia-a100", "ampere"),
        {"num_of_gpus": 1},
    ),
    "c2-standard-16": (
        *("gcp", "c2-standard-16", "linux-x86_64", "cpu"),
        *("intel-cascadelake", "x86_64-cascadelake", {"num_of_cores": 16}),
    ),
    "c2-standard-60": (
        *("gcp", "c2-standard-60", "linux-x86_64", "cpu"),
        *("intel-cascadelake", "x86_64-cascadelake", {"num_of_cores": 30}),
    ),
    "pixel-6-pro": (
        *("mobile", "pixel-6-pro", "android", "cpu", "armv8.2-a", "armv8.2-a"),
        {"num_of_cores": 8},
    ),
    "pixel-8-pro": (
        *("mobile", "pixel-8-pro", "android", "cpu", "armv9-a", "armv9-a"),
        {"num_of_cores": 9},
    ),
}
BY_NAME = {device.name: device for device in devices.ALL_DEVICES}


def test_all_devices_are_listed_once():
    assert sorted(BY_NAME) == sorted(FACTS)
    assert len(devices.ALL_DEVICES) == len(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_a_device_has_the_known_facts(name):
    device = BY_NAME[name]
    host_type, host_model, environment, kind, model, architecture, attributes = FACTS[name]
    assert (device.host_type, device.host_model) == (host_type, host_model)
    assert device.host_environment == environment
    assert device.accelerator_type == kind
    assert device.accelerator_model == model
    assert device.accelerator_architecture == architecture
    assert device.accelerator_attributes == attributes
