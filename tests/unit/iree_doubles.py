"""A double of a GPU behind IREE's runtime; imported instead of `iree.runtime`.

Its program adds one to each input. `STATE` describes the machine; tests change it.
"""

import importlib.abc
import sys
import types
from typing import Any

import numpy as np

STATE: dict[str, Any] = {
    "refusal": None,  # the driver's error when the device is opened
    "failure": None,  # its error when the program is loaded
    "statistics": {"device_bytes_peak": 123_456},
}
HIDDEN = ("iree.compiler", "jax", "jaxlib", "flax", "torch", "tensorflow", "keras")


class HalDevice:
    @property
    def allocator(self):
        found = STATE["statistics"]
        return types.SimpleNamespace(has_statistics=found is not None, statistics=found)


class HalDriver:
    def query_available_devices(self):
        return [{"device_id": 1, "path": "GPU-0", "name": "NVIDIA Double"}]


class HalBufferView:
    def __init__(self, array):
        self.array = np.asarray(array)


class DeviceArray:
    def __init__(self, device, view):
        self._buffer_view = view

    def to_host(self):
        return self._buffer_view.array


class VmVariantList(list):
    def __init__(self, capacity):
        super().__init__()

    push_ref = list.append

    def get_as_object(self, index, kind):
        return self[index]


class VmModule:
    function_names = ["main", "__init"]

    @staticmethod
    def copy_buffer(instance, content):
        if not content.startswith(b"vmfb"):
            raise ValueError("INVALID_ARGUMENT; FlatBuffer length prefix out of bounds")
        return VmModule()

    def lookup_function(self, name):
        return name if name in self.function_names else None


class VmContext:
    def __init__(self, instance, modules):
        if STATE["failure"]:
            raise RuntimeError(STATE["failure"])

    def invoke(self, function, arguments, results):
        results.extend(HalBufferView(view.array + 1) for view in arguments)


class ParameterIndex:
    def load(self, path):
        if path.endswith("missing"):
            raise ValueError("NOT_FOUND")

    def create_provider(self, scope):
        return scope


def get_device(uri, cache=True):
    if STATE["refusal"]:
        raise RuntimeError(STATE["refusal"])
    return HalDevice()


class _Hiding(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any(name == hidden or name.startswith(f"{hidden}.") for hidden in HIDDEN):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def install():
    """Replaces the runtime by the double, and hides the compiler and all frameworks."""
    runtime = types.ModuleType("iree.runtime")
    contents = {
        "HalBufferView": HalBufferView,
        "DeviceArray": DeviceArray,
        "ParameterIndex": ParameterIndex,
        "VmContext": VmContext,
        "VmInstance": object,
        "VmModule": VmModule,
        "VmVariantList": VmVariantList,
        "asdevicearray": lambda device, array: DeviceArray(device, HalBufferView(array)),
        "create_hal_module": lambda instance, device: device,
        "create_io_parameters_module": lambda instance, provider: provider,
        "get_device": get_device,
        "get_driver": lambda uri: HalDriver(),
    }
    vars(runtime).update(contents)
    package = types.ModuleType("iree")
    package.__path__ = []
    sys.modules |= {"iree": package, "iree.runtime": runtime}
    sys.meta_path.insert(0, _Hiding())
