"""Alternative names of frameworks, devices and backends."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

_FRAMEWORKS: Mapping[str, str] = MappingProxyType(
    {
        "pt": "pytorch",
        "torch": "pytorch",
        "tf": "tensorflow_v2",
        "tf2": "tensorflow_v2",
        "tf_v2": "tensorflow_v2",
        "tensorflow": "tensorflow_v2",
        "keras": "tensorflow_v2",
        "flax": "jax",
        "litert": "tflite",
    }
)
_DEVICES: Mapping[str, str] = MappingProxyType(
    {"cpu": "host-cpu", "gpu": "host-gpu", "cuda": "host-gpu"}
)
_BACKENDS: Mapping[str, str] = MappingProxyType(
    {
        "pytorch": "pt_inductor",
        "torch": "pt_inductor",
        "pt": "pt_inductor",
        "eager": "pt_inductor:eager",
        "inductor": "pt_inductor:inductor",
        "torch-compile": "pt_inductor:inductor",
        "aotinductor": "pt_inductor:aot-inductor",
        "aot-inductor": "pt_inductor:aot-inductor",
        "jax": "jax_xla",
        "tensorflow": "tf_xla",
        "tf": "tf_xla",
        "xla": "xla_hlo",
        "stablehlo": "xla_hlo:stablehlo",
        "onnx": "onnxruntime",
        "onnx-runtime": "onnxruntime",
        "ort": "onnxruntime",
        "ov": "openvino",
        "litert": "tflite",
    }
)
# Folders of models use the shortest names.
_FOLDERS: Mapping[str, str] = MappingProxyType({"pytorch": "pt", "tensorflow_v2": "tf"})


def framework(name: str) -> str:
    """Returns the value of a framework type by one of its names, e.g. `pytorch` for `pt`."""
    return _FRAMEWORKS.get(name.lower(), name.lower())


def framework_folder(name: str) -> str:
    """Returns the folder of a framework's models, e.g. `pt` for `torch`."""
    return _FOLDERS.get(framework(name), framework(name))


def device(name: str) -> str:
    """Returns the device by one of its names, e.g. `host-gpu` for `cuda`."""
    return _DEVICES.get(name.lower(), name)


def backend(name: str) -> str:
    """Returns a backend by one of its names, with the compiler if the name is a compiler's.

    Args:
      name: name without a compiler, e.g. `pytorch` or `inductor`.
    """
    return _BACKENDS.get(name.lower().replace("_", "-"), name)


def backends() -> Iterable[str]:
    """Returns the alternative names of backends."""
    return _BACKENDS


def competitor(text: str) -> str:
    """Returns `backend:compiler+option` with the suite's own name for the backend.

    Raises:
      ValueError: a name that stands for a compiler is followed by another compiler.
    """
    name, separator, rest = text.partition(":")
    bare, plus, options = name.partition("+")
    own = backend(bare)
    if ":" in own and separator:
        raise ValueError(f"{bare} already means {own}; remove {separator + rest!r}")
    return f"{own}{plus}{options}{separator}{rest}"
