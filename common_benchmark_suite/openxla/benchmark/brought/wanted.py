"""What a person says of a model that they bring, besides where it is."""

from collections.abc import Sequence
from pathlib import Path

import attrs

from openxla.benchmark.def_types import BenchmarkCase, DefinitionError


class BroughtError(DefinitionError):
    """What was brought cannot be measured; the message says what, where and what to do."""


@attrs.frozen(kw_only=True)
class Wanted:
    """How a model is to be run.

    Attributes:
      inputs: texts such as `f32[1,3,224,224]`, one for each argument; see `specs.InputSpec`.
      inputs_dir: directory with `input_0.npy` and so on, in place of them.
      text: file whose text a Hugging Face directory gets, by its tokenizer.
      image: file whose picture it gets, by its image processor.
      data_types: e.g. `fp32`; empty for the model's own.
      batch_sizes: what the dimension `batch` stands for; empty for 1.
      seq_lens: what the dimension `seq` stands for; empty for what suits the model.
      framework: value of a framework's type; None for all that the model is in.
      task: of a Hugging Face directory; None for the class that its configuration names.
      base: directory of the model that an adapter belongs to; None to go by the adapter.
      allow_code: whether weights may be read that can hold code.
      test: `eval` for outputs, `train` for training steps.
      folder: where relative paths start.
    """

    inputs: tuple[str, ...] = ()
    inputs_dir: Path | None = None
    text: Path | None = None
    image: Path | None = None
    data_types: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    seq_lens: tuple[int, ...] = ()
    framework: str | None = None
    task: str | None = None
    base: Path | None = None
    allow_code: bool = False
    test: str = "eval"
    folder: Path = attrs.field(factory=Path.cwd)


@attrs.frozen(kw_only=True)
class Found:
    """What a model that was brought is measured as.

    Attributes:
      cases: one for each framework, type, batch and length.
      remarks: what the user should know, e.g. why a framework is left out.
    """

    cases: Sequence[BenchmarkCase]
    remarks: Sequence[str] = ()
