"""Common parts of architectures that read the bundled text: tokens and their limits."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from openxla.benchmark import testdata
from openxla.benchmark.def_types import DefinitionError, Parameters, TensorSpec
from openxla.benchmark.models.architectures.base import Architecture, element_type, integer
from openxla.benchmark.models.model_interfaces import max_new_tokens

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class TextArchitecture(Architecture):
    """Networks whose default input is the bundled text, cut into windows of `seq_len` tokens."""

    # Number of token inputs: ids, and a mask or the ids of another text.
    token_inputs: ClassVar[int] = 1

    def longest(self, config: Mapping[str, Any]) -> int | None:
        """Returns the number of tokens supported by the positions; None if unlimited."""
        return int(config["max_position_embeddings"])

    def token_spec(self, parameters: Parameters) -> TensorSpec:
        """Returns the spec of token ids, i32[batch, seq].

        Raises:
          DefinitionError: a length is missing, or there are fewer positions than tokens.
        """
        seq_len, new = integer(self.complete(parameters), "seq_len"), self.new_tokens(parameters)
        longest = self.longest(self.config_of(parameters))
        if longest is not None and seq_len + (new or 0) > longest:
            # XLA clamps an index out of range, which gives a wrong answer instead of an error.
            counted = "'seq_len' is" if new is None else "'seq_len' and 'max_new_tokens' add up to"
            raise DefinitionError(f"{counted} {seq_len + (new or 0)}, but the maximum is {longest}")
        return TensorSpec(shape=(integer(parameters, "batch_size"), seq_len), dtype="i32")

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Token ids, i32[batch, seq], and other inputs of that shape."""
        return (self.token_spec(parameters),) * self.token_inputs

    def new_tokens(self, parameters: Parameters) -> int | None:
        """Returns the number of generated tokens; None if the model only scores its input.

        Raises:
          DefinitionError: `max_new_tokens` is not a positive integer.
        """
        return max_new_tokens(self.complete(parameters))

    def generates(self, parameters: Parameters) -> bool:
        """Returns whether `max_new_tokens` is given."""
        return self.new_tokens(parameters) is not None

    def generated_specs(self, parameters: Parameters, new: int) -> tuple[TensorSpec, ...]:
        """Returns the specs of generated tokens, i32[batch, new], and logits, f32[..., vocab]."""
        element_type(parameters.get("data_type"))  # raises for an unsupported type
        shape = (integer(parameters, "batch_size"), new)
        vocabulary = self.config_of(parameters)["vocab_size"]
        return (
            TensorSpec(shape=shape, dtype="i32"),
            TensorSpec(shape=(*shape, vocabulary), dtype="f32"),
        )

    def default_input_files(self) -> tuple[Path, ...]:
        """The bundled text and tokenizer."""
        return (testdata.DEFAULT_TEXT, testdata.TOKENIZER)

    def default_inputs(self, parameters: Parameters) -> Any:
        """The bundled text."""
        return testdata.load_text()

    def token_windows(
        self, text: str, parameters: Parameters, checkpoint: Path
    ) -> "tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]":
        """Returns token ids and mask of a text, a different window for each row of the batch."""
        from openxla.benchmark.models import preprocessing

        batch_size, seq_len = self.token_spec(parameters).shape
        tokenizer = checkpoint / testdata.TOKENIZER.name
        is_its_own = tokenizer.is_file()  # a user's directory may lack one
        ids, mask = preprocessing.token_batch(
            text,
            tokenizer if is_its_own else testdata.TOKENIZER,
            batch_size=batch_size,
            seq_len=seq_len,
        )
        # Another model's tokenizer may have a larger vocabulary.
        return ids if is_its_own else ids % self.config_of(parameters)["vocab_size"], mask

    def padded_windows(
        self, text: str, parameters: Parameters, checkpoint: Path
    ) -> "tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]":
        """Returns `token_windows` for a model with a mask: each row ends in padding."""
        from openxla.benchmark.models import preprocessing

        ids, mask = self.token_windows(text, parameters, checkpoint)
        pad = self.config_of(parameters)["pad_token_id"]
        return preprocessing.padded_rows(ids, mask, pad=pad)

    def checkpoint_files(self) -> Mapping[str, Path]:
        """The bundled tokenizer."""
        return {testdata.TOKENIZER.name: testdata.TOKENIZER}
