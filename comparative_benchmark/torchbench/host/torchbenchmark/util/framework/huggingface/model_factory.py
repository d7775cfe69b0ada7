"""Folders of Hugging Face's models: configurations are made here, so none is downloaded."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import torch

from ...model import BenchmarkModel
from ..needs import module


@attrs.frozen
class _Network:
    """Class of the model, class and arguments of its configuration, tokens a row by test.

    `on_cpu` divides the row's length on the CPU.
    """

    model: str
    config: str
    train: int
    eval: int
    on_cpu: int = 1
    arguments: Mapping[str, Any] = MappingProxyType({})


_MASKED, _CAUSAL, _PAIRS = "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
_BASE = MappingProxyType({"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072})
_NETWORKS = MappingProxyType(
    {
        "hf_Bert": _Network(_MASKED, "BertConfig", 512, 512),
        "hf_Bert_large": _Network(
            _MASKED,
            "BertConfig",
            512,
            512,
            1,
            {
                "hidden_size": 1024,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "intermediate_size": 4096,
            },
        ),
        "hf_GPT2": _Network(_CAUSAL, "GPT2Config", 512, 1024, 4),
        "hf_GPT2_large": _Network(
            _CAUSAL, "GPT2Config", 512, 1024, 4, {"n_embd": 1280, "n_layer": 36, "n_head": 20}
        ),
        "hf_T5": _Network(_PAIRS, "T5Config", 1024, 2048, 4),
        "hf_Bart": _Network(
            _PAIRS,
            "BartConfig",
            512,
            512,
            1,
            {
                "d_model": 768,
                "encoder_layers": 6,
                "decoder_layers": 6,
                "encoder_attention_heads": 12,
                "decoder_attention_heads": 12,
                "encoder_ffn_dim": 3072,
                "decoder_ffn_dim": 3072,
            },
        ),
        "hf_Albert": _Network(_MASKED, "AlbertConfig", 512, 512, 1, _BASE),
        "hf_DistilBert": _Network(_MASKED, "DistilBertConfig", 512, 512),
        "hf_BigBird": _Network(
            _MASKED, "BigBirdConfig", 1024, 4096, 5, {"attention_type": "block_sparse"}
        ),
        "hf_Longformer": _Network(_MASKED, "LongformerConfig", 1024, 4096, 8),
        "hf_Roberta_base": _Network(_MASKED, "RobertaConfig", 512, 512),
    }
)


class HuggingFaceModel(BenchmarkModel):
    """A language model by the folder's name, with weights from the seed."""

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
        if name not in _NETWORKS:
            raise NotImplementedError(
                f"the configuration of {name} is not known here; known: {', '.join(_NETWORKS)}"
            )
        network = _NETWORKS[name]
        transformers = module("transformers", "this folder")
        config = getattr(transformers, network.config)(**network.arguments)
        self.model = getattr(transformers, network.model).from_config(config).to(device)
        self.max_length = network.train if test == "train" else network.eval
        if test == "eval" and device == "cpu":
            self.max_length //= network.on_cpu
        self.vocab_size = config.vocab_size
        self.example_inputs = {"input_ids": self._tokens()}
        if test == "train":
            self.example_inputs["labels"] = self._tokens()
            self.model.train()
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        else:
            if network.model == _PAIRS:
                self.example_inputs["decoder_input_ids"] = self._tokens()
            self.model.eval()

    def _tokens(self) -> torch.Tensor:
        shape = (self.batch_size, self.max_length)
        return torch.randint(0, self.vocab_size, shape).to(self.device)

    def get_module(
        self, wrap_model: bool = True
    ) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
        """Returns the module and its arguments by name: i64[batch, tokens]."""
        return self.model, self.example_inputs

    def forward(self) -> torch.Tensor:
        """Returns the loss of the example."""
        loss: torch.Tensor = self.model(**self.example_inputs).loss
        return loss

    def backward(self, losses: torch.Tensor) -> None:
        """Computes gradients."""
        losses.backward()

    def optimizer_step(self) -> None:
        """Updates the weights."""
        self.optimizer.step()

    def eval(self, niter: int = 1) -> tuple[torch.Tensor]:
        """Returns scores f32[batch, tokens, vocab]."""
        return (self.model(**self.example_inputs).logits,)


class HuggingFaceAuthMixin:
    """Folders of gated models say by it that they need a token of the hub."""

    def __init__(self) -> None:
        raise NotImplementedError("network: its weights are gated, and need a token of the hub")


class HuggingFaceGenerationModel(HuggingFaceModel):
    """Folders that generate text."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError(
            "folders that generate text are not run: measure the suite's own GPT2 or LLAMA cases"
        )
