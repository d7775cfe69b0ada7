"""Reasons why a file is not a model, by its content and name, with alternatives."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from openxla.benchmark.files import substitute_of
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.programs import torch_archives

NOTEBOOK = ".ipynb"
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".ptl", ".jit", ".joblib", ".t7")
_EXPORT = "torch.export.save (.pt2) or torch.jit.save"
_SOURCE = "pass the file that it was converted from"
_MODULE_FILE = "pass the file that creates the module, PATH.py:CALLABLE"
_MODULE = "pass the file that creates the model, PATH.py:CALLABLE"
_CORE_ML = f"is a Core ML model, which runs only on Apple's systems; {_SOURCE}"
_TENSORRT = (
    "is a TensorRT engine, which runs on one kind of GPU with one version of TensorRT; pass the "
    ".onnx file that it was built from"
)
_CHECKPOINT = f"belongs to a TensorFlow checkpoint, which contains only weights; {_MODULE}"
_GGUF = (
    "contains quantised weights for llama.cpp; measure it with llama-bench, or convert it with "
    "transformers: AutoModelForCausalLM.from_pretrained(DIRECTORY, gguf_file=NAME)"
    ".save_pretrained(OUTPUT), and pass OUTPUT"
)
# File name suffix -> a sentence about the file, and the remedy.
SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        ".pb": "is a TensorFlow graph without a signature; save it with tf.saved_model.save, and "
        "pass the directory",
        ".hlo": "is HLO; export StableHLO instead: write jax.jit(f).lower(x).as_text() to a .mlir "
        "file",
        ".vmfb": "was compiled by IREE for one device; pass the .mlir or .onnx file that it was "
        "compiled from",
        ".xml": "is an OpenVINO model, which has no float64 run; pass the .onnx file or the "
        "model that it was converted from, with --backend openvino",
        **dict.fromkeys((".engine", ".plan", ".trt"), _TENSORRT),
        **dict.fromkeys((".mlmodel", ".mlpackage", ".mlmodelc"), _CORE_ML),
        ".ort": "is in ONNX Runtime's own format; pass the .onnx file that it was converted from",
        ".pdmodel": "is a PaddlePaddle model; convert it with paddle2onnx, and pass the .onnx file",
        ".caffemodel": "is a Caffe model; convert it to ONNX, and pass the .onnx file",
        **dict.fromkeys((".gguf", ".ggml"), _GGUF),
        ".safetensors": "contains only weights; pass the directory with its config.json",
        ".npz": f"contains only arrays; {_MODULE}",
        ".npy": f"contains only an array; {_MODULE}, and the array's directory with --inputs",
        ".msgpack": f"contains only Flax weights; {_MODULE}",
        **dict.fromkeys((".index", ".meta"), _CHECKPOINT),
    }
)
# Offset and magic bytes of a format, its name, suffixes that fit, and the remedy.
_CONTENTS = (
    (0, b"GGUF", "is GGUF and ", (".gguf", ".ggml"), _GGUF),
    (0, b"\x89HDF\r\n\x1a\n", "is HDF5; ", (".h5", ".hdf5"), "rename it to end in .h5"),
    (4, b"TFL3", "is a TFLite file; ", (".tflite",), "rename it to end in .tflite"),
    (
        *(0, b"PK\x03\x04", "is a zip archive; "),
        (".pt2", ".keras", ".torchscript", ".npz", *PICKLES),
        "unpack it, or rename it to end in .keras or .pt2 if it is such a model",
    ),
)
_OTHER_LIBRARIES = ("sklearn", "xgboost", "lightgbm", "catboost", "joblib")


def refuse_substitute(path: Path, text: str | None = None, *, has_header: bool = True) -> None:
    """Raises UserModelError if the content of a file does not match its name.

    The content may be a pointer, an error message, empty, or of another known format.

    Args:
      path: an existing file.
      text: its name in messages; None for its path.
      has_header: see `substitute_of`.
    """
    try:
        substitute = substitute_of(path, has_header=has_header)
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise UserModelError(f"{text or path} cannot be read: {error}") from error
    if substitute:
        raise UserModelError(f"{text or path} {substitute}")
    for place, magic, kind, suffixes, way_out in _CONTENTS:
        if head[place:].startswith(magic) and path.suffix.lower() not in suffixes:
            raise UserModelError(f"{text or path} {kind}{way_out}")


def refusal_of(text: str, path: Path) -> str | None:
    """Returns why a file is not a model that can be run; None for an unknown kind of file.

    Args:
      text: as the user typed it.
      path: path of the file, which may not exist.
    """
    suffix = path.suffix.lower()
    if suffix == NOTEBOOK:
        script = shlex.quote(path.with_suffix(".py").name)
        return (
            f"{text} is a notebook; convert it with `jupyter nbconvert --to script "
            f"{shlex.quote(text)}`, keep the cells that define the model, and pass {script}"
        )
    if path.name == "saved_model.pb":
        return f"{text} is part of a SavedModel; pass its directory"
    if path.with_name(f"{path.name}.index").is_file():
        return f"{text} {SENTENCES['.index']}"
    if suffix in SENTENCES:
        return f"{text} {SENTENCES[suffix]}"
    if suffix in PICKLES:
        return f"{text} {_about_pickle(path)}"
    return None


def _about_pickle(path: Path) -> str:
    """Describes a file that `torch.save` may have written, with the remedy."""
    usual = f"is a pickle, which contains code or only weights; {_MODULE_FILE}"
    if not path.is_file():
        return usual
    if path.with_suffix(".xml").is_file():
        return f"contains the weights of an OpenVINO model; {_SOURCE}"
    classes = torch_archives.pickled_objects(path)
    if classes is None:
        return f"was not written by torch.save; {_MODULE_FILE}, or export it with {_EXPORT}"
    if classes and classes[0].partition(".")[0] in _OTHER_LIBRARIES:
        return f"is a pickle of {classes[0]}, which runs code when loaded; convert it to ONNX"
    if classes:
        return (
            f"is a pickle of {classes[0]}, which runs code when loaded; {_MODULE_FILE}, or export "
            f"the model with {_EXPORT}"
        )
    return f"is a pickle that contains only weights; {_MODULE_FILE}, which loads them"
