"""A toy that continues prompts: one layer of attention with a static cache, in numpy.

Its tokens can come in twins: rows of the head so nearly equal that rounding decides between the
two, while what is read of them afterwards is as different as any two tokens. In the model
`toy-text-twins`, then, runs in another type leave the truth's tokens at near-ties, and nothing is
wrong with that.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from openxla.benchmark import testdata
from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models import checkpoints, shared_model
from openxla.benchmark.models.architectures.base import Architecture, TensorInit, integer
from openxla.benchmark.models.model_interfaces import GenerationModel
from openxla.benchmark.models.preprocessing import numpy_dtype, token_batch

VOCABULARY, WIDTH, BATCH, PROMPT = 64, 32, 2, 6


class ToyText(Architecture):
    name = "toy_text"
    version = 1
    configs = {
        "toy-text": {"size": WIDTH, "twins": False},
        "toy-text-twins": {"size": WIDTH, "twins": True},
    }

    def tensors(self, config: Any) -> Iterable[TensorInit]:
        for name in ("query", "key", "value"):
            yield TensorInit(name=name, shape=(WIDTH, WIDTH), stddev=(2 / WIDTH) ** 0.5)
        for name, rows in (("words", VOCABULARY), ("head", VOCABULARY), ("places", 32)):
            yield TensorInit(name=name, shape=(rows, WIDTH), stddev=1.0)

    def generates(self, parameters: Parameters) -> bool:
        return True

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        return (TensorSpec(shape=(BATCH, PROMPT), dtype="i32"),)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        new = integer(parameters, "max_new_tokens")
        return (
            TensorSpec(shape=(BATCH, new), dtype="i32"),
            TensorSpec(shape=(BATCH, new, VOCABULARY), dtype="f32"),
        )

    def label(self, parameters: Parameters) -> str:
        return f"{parameters['model_name']}-{parameters['data_type']}"

    def default_input_files(self) -> tuple[Path, ...]:
        return (testdata.DEFAULT_TEXT, testdata.TOKENIZER)

    def default_inputs(self, parameters: Parameters) -> Any:
        return testdata.load_text()

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Any:
        ids, _ = token_batch(raw_input, testdata.TOKENIZER, batch_size=BATCH, seq_len=PROMPT)
        return (ids % VOCABULARY,)


ARCHITECTURE = ToyText()


class ToyGenerator(shared_model.ArchitectureModel, GenerationModel):
    """Every operation is rounded to the model's type, or to `dtype` once that is set.

    `fault` selects the fault: see the methods.
    """

    def __init__(self, *, fault: str = "none", **parameters: Any) -> None:
        self.set_architecture(ARCHITECTURE, parameters)
        self.max_new_tokens = integer(parameters, "max_new_tokens")
        self.fault = fault
        own = numpy_dtype({"fp32": "f32", "fp16": "f16", "bf16": "bf16"}[parameters["data_type"]])
        self.dtype: Any = own
        weights = checkpoints.load_tensors(ARCHITECTURE, self.checkpoint)
        self.weights = {name: weights[name].astype(own) for name in weights}
        if ARCHITECTURE.config(parameters["model_name"])["twins"]:
            head = self.weights["head"]
            head[1::2] = head[::2]
            # The next number of the type, in one place: the truth does see which is larger.
            head[1::2, 0] = np.nextafter(head[::2, 0].astype(np.float32), np.float32(9))
        self.calls = 0

    def prefill(self, input_ids: Any) -> Any:
        length = input_ids.shape[1] + self.max_new_tokens + 1
        shape = (len(input_ids), length, WIDTH)
        cache = (np.zeros(shape, self.dtype), np.zeros(shape, self.dtype))
        for position in range(input_ids.shape[1]):
            logits, cache = self._read(input_ids[:, position], position, cache)
        if self.fault == "parts-crash" and self.calls == 0:
            os.abort()
        return logits, cache

    def decode(self, token: Any, position: int, cache: Any) -> Any:
        if self.fault == "wrong-position":
            position += 1
        if self.fault == "parts-wrong" and self.calls == 0:
            position += 1
        return self._read(token, position, cache, is_decoding=True)

    def generate(self, input_ids: Any, forced_tokens: Any = None) -> Any:
        self.calls += 1
        logits, cache = self.prefill(input_ids)
        tokens, all_logits = [self._choose(logits)], [logits]
        for index in range(self.max_new_tokens - 1):
            own = forced_tokens is None or self.fault == "ignores-what-it-is-fed"
            token = tokens[-1] if own else forced_tokens[:, index]
            logits, cache = self.decode(token, input_ids.shape[1] + index, cache)
            if self.fault == "late-garbage" and index == self.max_new_tokens - 2 and own:
                logits = logits[:, ::-1].copy()
            tokens.append(self._choose(logits))
            all_logits.append(logits)
        self.calls -= 1
        return np.stack(tokens, axis=1), np.stack(all_logits, axis=1)

    def forward(self, input_ids: Any, forced_tokens: Any = None) -> Any:
        return self.generate(input_ids, forced_tokens)

    def in_float64(self, *inputs: Any) -> Any:
        """Generates with the same weights in float64."""
        own, self.dtype = self.dtype, np.dtype(np.float64)
        try:
            return self.generate(*inputs)
        finally:
            self.dtype = own

    def _choose(self, logits: Any) -> Any:
        if self.fault == "second-best":
            return np.argsort(-logits, axis=-1, kind="stable")[:, 1].astype(np.int32)
        return logits.argmax(axis=-1).astype(np.int32)

    def _read(self, token: Any, position: int, cache: Any, *, is_decoding: bool = False) -> Any:
        wide = np.promote_types(self.dtype, np.float32) if self.dtype.kind == "f" else np.float32

        def product(x: Any, name: str) -> Any:
            return (x.astype(wide) @ self.weights[name].astype(wide).T).astype(self.dtype)

        words, places = self.weights["words"], self.weights["places"]
        x = words[token].astype(self.dtype) + places[position].astype(self.dtype)
        keys, values = cache
        write = position + (is_decoding and self.fault == "writes-one-place-further")
        if not (is_decoding and self.fault == "stale-cache"):
            keys[:, write], values[:, write] = product(x, "key"), product(x, "value")
        last = position - (is_decoding and self.fault == "mask-one-too-short")
        query = product(x, "query").astype(wide)
        scores = np.einsum("bw,blw->bl", query, keys[:, : last + 1].astype(wide)) / WIDTH
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        context = np.einsum("bl,blw->bw", weights, values[:, : last + 1].astype(wide))
        y = np.tanh(x.astype(wide) + 2 * context).astype(self.dtype)
        logits = product(y, "head")
        return logits.astype(wide), cache


def create_model(**parameters: Any) -> ToyGenerator:
    """Returns the toy with the given fault."""
    return ToyGenerator(**parameters)
