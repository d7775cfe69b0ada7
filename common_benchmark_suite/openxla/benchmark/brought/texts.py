"""A text as the inputs of a Hugging Face directory, by the tokenizer that lies in it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openxla.benchmark.brought.real_inputs import cases_on
from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.def_types import BenchmarkCase, Model
from openxla.benchmark.files import sha256_of
from openxla.benchmark.models import architectures
from openxla.benchmark.models.architectures.base import integer
from openxla.benchmark.models.architectures.directories import TOKENIZER_FILE


def on_text(
    cases: Sequence[BenchmarkCase], directory: Path, config: Mapping[str, Any], file: Path
) -> list[BenchmarkCase]:
    """Returns the cases of a directory on windows of a text, a different one for each row.

    Raises:
      BroughtError: there is no tokenizer or no text, or the model takes none.
    """
    tokenizer = directory / TOKENIZER_FILE
    if not tokenizer.is_file():
        raise BroughtError(
            f"--text: {directory} has no {TOKENIZER_FILE}; save the model's tokenizer there with "
            "save_pretrained()"
        )
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BroughtError(f"--text {file} cannot be read as UTF-8 text: {error}") from error
    return cases_on(
        cases,
        [text, sha256_of(tokenizer)],
        lambda model: _arrays(text, model, directory, config),
    )


def _arrays(text: str, model: Model, directory: Path, config: Mapping[str, Any]) -> Sequence[Any]:
    from openxla.benchmark.models import preprocessing

    parameters = model.model_parameters
    try:
        if name := model.model_impl.architecture:
            arrays = _of_architecture(text, name, parameters, directory)
        elif config.get("is_encoder_decoder"):
            raise BroughtError(
                f"--text: {directory.name} has an encoder and a decoder, which need separate "
                "texts; pass --inputs"
            )
        else:
            arrays = preprocessing.token_batch(
                text,
                directory / TOKENIZER_FILE,
                batch_size=integer(parameters, "batch_size"),
                seq_len=integer(parameters, "seq_len"),
            )
    except BroughtError:
        raise
    except Exception as error:  # tokenizers raises what Rust says, of no class of its own
        raise BroughtError(f"--text: {directory / TOKENIZER_FILE}: {error}") from error
    highest, vocabulary = int(arrays[0].max()), int(config["vocab_size"])
    if highest >= vocabulary:
        raise BroughtError(
            f"--text: {TOKENIZER_FILE} produced token {highest}, but the model has only "
            f"{vocabulary}; save the model's own tokenizer there"
        )
    return arrays


def _of_architecture(
    text: str, name: str, parameters: Mapping[str, Any], directory: Path
) -> Sequence[Any]:
    architecture = architectures.get(name)
    complete = architecture.complete(parameters)
    if not isinstance(architecture.default_inputs(complete), str):
        raise BroughtError(f"--text: {directory.name} does not accept text")
    return architecture.preprocess(text, complete, directory)
