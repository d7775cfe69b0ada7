"""Folders of Hugging Face's models, with weights from the seed."""

import contextlib
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from ....tasks import NLP
from ...model import BenchmarkModel
from .. import Stages, refuse_without_memory
from .networks import NETWORKS, PAIRS

_TOKEN = "HUGGING_FACE_HUB_TOKEN"  # noqa: S105  # the name of a variable
_GENERATE = "_generate"
# Few models are stable with the other models' Adam settings.
_WITH_SGD = ("llama_v2_7b_16h",)


class HuggingFaceModel(Stages, BenchmarkModel):
    """A model by the folder's name; with `_generate` at its end, one that generates text."""

    HF_MODEL = True

    def __init__(
        self,
        name: str,
        test: str,
        device: str,
        batch_size: int | None = None,
        extra_args: Sequence[str] = (),
        **_: Any,
    ) -> None:
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        self.name = name
        self.is_generate = name.endswith(_GENERATE)
        self.unqual_name = name.removesuffix(_GENERATE)
        if self.unqual_name not in NETWORKS:
            raise NotImplementedError(
                f"network: {name} needs a configuration from the Hugging Face Hub"
            )
        network = NETWORKS[self.unqual_name]
        transformers = import_module("transformers")
        config = getattr(transformers, network.config)(**network.arguments)
        self.model_cls = getattr(transformers, network.model)
        make = getattr(self.model_cls, "from_config", self.model_cls)
        refuse_without_memory(lambda: make(config), test, device)
        self.model = make(config).to(device)
        self.max_length = network.train if test == "train" else network.eval
        if test == "eval" and device == "cpu":
            self.max_length //= network.on_cpu
        self.vocab_size = config.vocab_size
        self.amp_context = contextlib.nullcontext
        self.example_inputs: Any = {"input_ids": self._tokens()}
        if test == "train":
            self.example_inputs["labels"] = self._tokens()
            self.model.train()
            kind = torch.optim.SGD if name in _WITH_SGD else torch.optim.Adam
            self.optimizer = kind(self.model.parameters(), lr=1e-3)
        else:
            if network.model == PAIRS:
                self.example_inputs["decoder_input_ids"] = self.example_inputs["input_ids"]
            self.model.eval()

    def _tokens(self) -> torch.Tensor:
        shape = (self.batch_size, self.max_length)
        return torch.randint(0, self.vocab_size, shape).to(self.device)

    def get_module(self, wrap_model: bool = True) -> tuple[torch.nn.Module, Any]:
        """Returns the module and its arguments by name: i64[batch, tokens]."""
        return self.model, self.example_inputs

    def forward(self) -> torch.Tensor:
        """Returns the loss of the example."""
        with self.amp_context():
            loss: torch.Tensor = self.model(**self.example_inputs).loss
        return loss

    def eval(self, niter: int = 1) -> tuple[torch.Tensor]:
        """Returns scores: f32[batch, tokens, vocab] of a language model."""
        with torch.no_grad(), self.amp_context():
            return (self.model(**self.example_inputs).logits,)


class HuggingFaceAuthMixin:
    """Marks folders of gated models, which need a token of the hub."""

    def __init__(self) -> None:
        # Our models take weights from the seed, so they fetch nothing that needs a token.
        if _TOKEN not in os.environ and not isinstance(self, HuggingFaceModel):
            raise NotImplementedError(
                f"network: the gated weights need a Hugging Face token in {_TOKEN} "
                "(--inherit-environment passes it to workers)"
            )


class GenerationWrapper(torch.nn.Module):
    """A model whose call generates text."""

    def __init__(self, model: Any, generation_config: Any) -> None:
        super().__init__()
        self.model = model
        self.generation_config = generation_config

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns tokens i64[batch, prompt and generated ones] of a prompt i64[batch, tokens]."""
        generated: torch.Tensor = self.model.generate(inputs, self.generation_config)
        return generated


class HuggingFaceGenerationModel(HuggingFaceModel):
    """Folders that generate text: a fixed number of tokens, greedily."""

    task = NLP.GENERATION
    DEFAULT_EVAL_BSIZE = 1

    def __init__(self, name: str, test: str, device: str, **more: Any) -> None:
        if test == "train":
            raise NotImplementedError("text-generation folders cannot be trained")
        super().__init__(name=name, test=test, device=device, **more)
        config = import_module("transformers").GenerationConfig(
            max_new_tokens=256, pad_token_id=0, eos_token_id=None, do_sample=False, num_beams=1
        )
        self.model = GenerationWrapper(self.model, config)
        self.example_inputs = (self.example_inputs["input_ids"],)

    def eval(self, niter: int = 1) -> tuple[torch.Tensor]:
        """Returns tokens i64[batch, prompt and generated ones]."""
        with torch.no_grad(), self.amp_context():
            return (self.model(*self.example_inputs),)
