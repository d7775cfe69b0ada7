"""Options of `cbs run MODEL`: a model that the user brings, in place of cases of the catalogue."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from comparative_benchmark.terminal.options import EVAL, UsageError, count, spellings

if TYPE_CHECKING:  # help is printed without the vocabulary of cases
    from openxla.benchmark.brought import Definitions, Found, Wanted


def add_model_arguments(parser: argparse.ArgumentParser, *, saving: bool = False) -> None:
    """Adds the model, and what is said of it; with `--save-as`, if its definitions are kept."""
    group = parser.add_argument_group("your own model")
    add = group.add_argument
    add(
        "model",
        nargs="?",
        metavar="MODEL",
        help="model to run instead of -name: PATH.py, PATH.py:CALLABLE, PACKAGE.MODULE:CALLABLE, a "
        "Hugging Face directory, hub:OWNER/NAME@REVISION, an exported program (.onnx, .mlir, .pt2, "
        "TorchScript, .keras, .h5, .tflite, .jax_export, a SavedModel) or a folder of them",
    )
    add(
        "--input",
        action="append",
        default=[],
        metavar="SPEC",
        help="input of the model, e.g. 'f32[1,3,224,224]', 'i32[batch,seq]<1000', 'i32[4,32]=1'; "
        "repeat it for each argument; in a Hugging Face directory, name the argument: "
        "'bbox=i32[1,128,4]<1000' (default: example_inputs() of the file, or the program's "
        "signature)",
    )
    add("--dtype", type=_names, default=(), metavar="TYPE,...", help="data types, e.g. fp32,bf16")
    add("--batch", type=_numbers, default=(), metavar="N,...", help="batch sizes, e.g. 1,8")
    add(
        *spellings("--seq-len"),
        type=_numbers,
        default=(),
        metavar="N,...",
        help="sequence lengths",
    )
    add("--task", help="task of a Hugging Face directory, e.g. text-classification")
    add(
        "--base",
        type=Path,
        metavar="DIR",
        help="directory of the model that a LoRA adapter belongs to (default: where the adapter "
        "names it)",
    )
    add(
        "--text",
        type=Path,
        metavar="FILE",
        help="text file to use as input of a Hugging Face directory, through its tokenizer",
    )
    add(
        "--image",
        type=Path,
        metavar="FILE",
        help="image file to use as input of a Hugging Face directory, through its image processor",
    )
    add(
        *spellings("--allow-code", "--allow-pickle"),
        action="store_true",
        help="load pickled weights, and .pt2, TorchScript and Keras files that hold code (alias: "
        "--allow-pickle)",
    )
    if saving:
        add(
            *spellings("--save-as"),
            type=Path,
            metavar="DIR",
            help="write definitions of the cases that ran; --suite-dir DIR runs them again",
        )


def brought_model(options: argparse.Namespace) -> "Found | None":
    """Returns the cases of the model that options name; None if they name none.

    Raises:
      UsageError: it cannot be measured.
    """
    from openxla.benchmark.brought import BroughtError, found_bounded

    model = getattr(options, "model", None)
    if model is None:
        return None
    try:
        return found_bounded(model, _wanted(options))
    except BroughtError as error:
        raise UsageError(str(error)) from error


def definitions_to_save(options: argparse.Namespace, found: "Found") -> "Definitions | None":
    """Returns what `--save-as` asks for; None where nobody does.

    Raises:
      UsageError: other files have its names.
    """
    from openxla.benchmark.brought import BroughtError, definitions

    if getattr(options, "save_as", None) is None:
        return None
    try:
        return definitions(options.model, _wanted(options), found.cases, options.save_as)
    except BroughtError as error:
        raise UsageError(str(error)) from error


def _wanted(options: argparse.Namespace) -> "Wanted":
    from openxla.benchmark.brought import Wanted

    return Wanted(
        inputs=tuple(options.input),
        inputs_dir=options.inputs,
        text=options.text,
        image=options.image,
        data_types=options.dtype,
        batch_sizes=options.batch,
        seq_lens=options.seq_len,
        framework=options.framework,
        task=options.task,
        base=options.base,
        allow_code=options.allow_code,
        test=getattr(options, "test", EVAL),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, text.split(","))))


def _numbers(text: str) -> tuple[int, ...]:
    parse = count(1)
    return tuple(dict.fromkeys(parse(part) for part in text.split(",")))
