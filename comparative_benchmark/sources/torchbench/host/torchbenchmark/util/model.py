"""The base class of model folders; serves both protocols.

2021 (the guide "How to add a new model"): `Model(device, jit)` calls `super().__init__()` without
arguments and loops inside `train(niter)` and `eval(niter)`. Today: `Model(test, device, batch_size,
extra_args)` hands these on, and runs one iteration in `train()`, `eval()`, or `forward()`,
`backward(losses)` and `optimizer_step()`. Forms between these work too: `Model(device, jit,
train_bs, eval_bs)` of 2022, `step_fn` and `annotate_forward()` of 2021.
"""

import argparse
import contextlib
import enum
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

import torch
import yaml
from torch.utils import _pytree as pytree

from .env_check import (
    NOT_COMPARED_WITHOUT_JIT,
    USE_GRAD_IN_INFERENCE,
    fix_torch_seed,
    set_random_seed,
)

Context = Callable[[], AbstractContextManager[Any]]
# Called by a folder after each of several iterations, which it counts.
STEP_FN = Callable[[], Any]
# GPUs that take the batch sizes of another one in metadata.yaml.
SPECIAL_DEVICE_MAPPING = {"AMD Instinct MI210": "NVIDIA A100-SXM4-40GB"}


class TEST_STAGE(enum.Enum):  # noqa: N801  # its name in folders
    """The part of a training step to which a context applies."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    ALL = "all"


@contextlib.contextmanager
def no_grad(val: bool) -> Iterator[None]:
    """Computes without gradients, or with them, inside a `with` block."""
    with torch.set_grad_enabled(not val):
        yield


@contextlib.contextmanager
def nested(*contexts: Context) -> Iterator[None]:
    """Enters contexts one after the other."""
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context())
        yield


class PostInitProcessor(type):
    """Calls `__post__init__` after all constructors."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Returns the object."""
        made = super().__call__(*args, **kwargs)
        made.__post__init__()
        return made


class BenchmarkModel(metaclass=PostInitProcessor):
    """Base class of a folder's `class Model`."""

    DEFAULT_TRAIN_BSIZE: int | None = None
    DEFAULT_EVAL_BSIZE: int | None = None
    ALLOW_CUSTOMIZE_BSIZE = True
    CANNOT_SET_CUSTOM_OPTIMIZER = False
    DEEPCOPY = True
    DISABLE_DETERMINISM = False
    HF_MODEL = TIMM_MODEL = TORCHVISION_MODEL = False
    example_inputs: Any

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Sets common attributes; some folders of 2021 do not call the constructor below."""
        made = super().__new__(cls)
        made._prepare()
        return made

    def __init__(
        self,
        test: str | None = None,
        device: str | None = None,
        jit: bool = False,
        batch_size: int | None = None,
        extra_args: Sequence[str] = (),
    ) -> None:
        if test is None:  # 2021: the folder sets what it has by itself
            return
        if test not in ("train", "eval"):
            raise ValueError(f"test must be 'train' or 'eval', got {test!r}")
        self.test, self.device, self.jit = test, device, jit
        self.extra_args = list(extra_args)
        self._refuse_by_metadata()
        self.batch_size = self.determine_batch_size(batch_size)
        fix_torch_seed()
        set_random_seed()

    def _prepare(self) -> None:
        self.metadata = self._read_metadata()
        if getattr(self, "name", None) is None:
            self.name = type(self).__module__.rpartition(".")[2]
        self.run_contexts: list[Context] = []
        self.forward_contexts: list[Context] = []
        self.backward_contexts: list[Context] = []
        self.optimizer_contexts: list[Context] = []
        self.num_batch = 1
        # Options of TorchBench's own runner, at their defaults: folders read some of them.
        self.dargs = argparse.Namespace(
            precision="fp32", channels_last=False, accuracy=False, num_batch=1, distributed=None
        )
        self.opt_args, self.dynamo, self.opt = argparse.Namespace(), False, None

    def __post__init__(self) -> None:
        """Does nothing: options of TorchBench's own runner do not reach a folder here."""

    def determine_batch_size(self, batch_size: int | None = None) -> int:
        """Returns the user's batch size, or metadata.yaml's for the device, or the class's own.

        Raises:
          NotImplementedError: the batch size is missing, or the folder accepts only its default.
        """
        own = self.DEFAULT_TRAIN_BSIZE if self.test == "train" else self.DEFAULT_EVAL_BSIZE
        of_device = self._batch_size_of_device() if self.ALLOW_CUSTOMIZE_BSIZE else None
        size = batch_size or of_device or own
        if not size:
            raise NotImplementedError(f"no default batch size: {self.test} is not implemented")
        if not self.ALLOW_CUSTOMIZE_BSIZE and size != own:
            raise NotImplementedError(f"the batch size must be {own}, got {size}")
        return size

    def _refuse_by_metadata(self) -> None:
        """Raises for a GPU for which metadata.yaml lists the test as not implemented.

        Entries for `cpu` and `cuda` are for TorchBench's unit tests: its runner ignores them.
        """
        listed = self.metadata.get("not_implemented") if isinstance(self.metadata, dict) else None
        for item in listed if isinstance(listed, list) and self.device == "cuda" else ():
            known = isinstance(item, dict) and item.get("test", self.test) == self.test
            if known and item.get("device") == torch.cuda.get_device_name():
                raise NotImplementedError(f"metadata.yaml: not implemented on {item['device']}")

    def _batch_size_of_device(self) -> int | None:
        devices = self.metadata.get("devices") if isinstance(self.metadata, dict) else None
        if not isinstance(devices, dict):  # some files have a list without sizes
            return None
        name = torch.cuda.get_device_name() if self.device == "cuda" else self.device
        sizes = devices.get(SPECIAL_DEVICE_MAPPING.get(str(name), name))
        return sizes.get(f"{self.test}_batch_size") if isinstance(sizes, dict) else None

    def _read_metadata(self) -> Any:
        path = Path(inspect.getfile(type(self))).parent / "metadata.yaml"
        return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None

    @staticmethod
    def asked(
        test: str | None, batch_size: int | None, train_bs: int | None, eval_bs: int | None
    ) -> dict[str, Any]:
        """Returns test and batch size; folders of 2022 name a size for each test."""
        chosen = test or os.environ.get("CBS_TORCHBENCH_TEST", "eval")
        return {
            "test": chosen,
            "batch_size": batch_size or (train_bs if chosen == "train" else eval_bs),
        }

    def add_context(self, context_fn: Context, stage: TEST_STAGE = TEST_STAGE.ALL) -> None:
        """Encloses every run, or a stage of every training step, in a context."""
        by_stage = {
            TEST_STAGE.ALL: self.run_contexts,
            TEST_STAGE.FORWARD: self.forward_contexts,
            TEST_STAGE.BACKWARD: self.backward_contexts,
            TEST_STAGE.OPTIMIZER: self.optimizer_contexts,
        }
        by_stage[stage].append(context_fn)

    def get_module(self) -> Any:
        """Returns the module, and example inputs: a tuple, a list, or a dictionary by name."""
        raise NotImplementedError("get_module() is not implemented")

    def set_module(self, new_model: torch.nn.Module) -> None:
        """Replaces the model by another module."""
        if not isinstance(getattr(self, "model", None), torch.nn.Module):
            raise NotImplementedError("`self.model` is not a module; define set_module()")
        self.model = new_model

    def get_optimizer(self) -> Any:
        """Returns `optimizer` or `opt`; None if it is not an optimizer but settings."""
        optimizer = getattr(self, "optimizer", None) or self.opt
        return optimizer if hasattr(optimizer, "zero_grad") else None

    def set_optimizer(self, optimizer: Any) -> None:
        """Replaces the optimizer."""
        if not hasattr(self, "optimizer") and hasattr(self.opt, "zero_grad"):
            self.opt = optimizer
        else:
            self.optimizer = optimizer

    def get_input_iter(self) -> Iterator[Any]:
        """Yields the example inputs for ever."""
        inputs = self.get_module()[1]
        while True:
            yield inputs

    def set_train(self) -> None:
        """Sets the module to training mode."""
        self.get_module()[0].train()

    def set_eval(self) -> None:
        """Sets the module to inference mode."""
        self.get_module()[0].eval()

    def train(self, niter: int = 1) -> Any:
        """Runs training steps; `_train` in folders between the two protocols."""
        if hasattr(self, "_train"):
            return self._train(niter)
        raise NotImplementedError("train is not implemented")

    def eval(self, niter: int = 1) -> Any:
        """Runs inference; `_eval` in folders between the two protocols."""
        if hasattr(self, "_eval"):
            return self._eval(niter)
        raise NotImplementedError("eval is not implemented")

    def eval_in_nograd(self) -> bool:
        """Returns whether inference runs without gradients; the name overrides the file."""
        if self.name in USE_GRAD_IN_INFERENCE:
            return False
        return not (isinstance(self.metadata, dict) and self.metadata.get("eval_nograd") is False)

    def is_staged(self) -> bool:
        """Returns whether a training step is written only in stages, not also in one piece."""
        if getattr(self.train, "__func__", None) is not BenchmarkModel.train:
            return False
        return all(hasattr(self, name) for name in ("forward", "backward", "optimizer_step"))

    @contextlib.contextmanager
    def annotate_forward(self) -> Iterator[None]:
        """Encloses a stage of a training step; does nothing."""
        yield

    annotate_backward = annotate_optimizer = annotate_forward

    def invoke_staged_train_test(self) -> Any:
        """Runs the stages of a training step and returns what `forward` did: the losses."""
        optimizer = self.get_optimizer()
        if optimizer is not None:
            optimizer.zero_grad()
        stages: Any = self
        with nested(*self.forward_contexts):
            losses = stages.forward()
        with nested(*self.backward_contexts):
            stages.backward(losses)
        if optimizer is not None:
            with nested(*self.optimizer_contexts):
                stages.optimizer_step()
        return losses

    def invoke(self) -> Any:
        """Runs one iteration of the test that the object was made for."""
        with nested(*self.run_contexts):
            if self.test == "eval":
                return self.eval()
            return self.invoke_staged_train_test() if self.is_staged() else self.train()

    def check_opt_vs_noopt_jit(self) -> None:
        """Compares a scripted module with itself, run without optimizations."""
        if not getattr(self, "jit", False):
            return
        folder = Path(inspect.getfile(type(self))).parent.name
        if folder in NOT_COMPARED_WITHOUT_JIT:
            warnings.warn(f"{folder}: TorchBench skips this comparison", stacklevel=2)
            return
        module, inputs = self.get_module()
        fast = _called(module, inputs)
        with torch.jit.optimized_execution(False):
            slow = _called(module, inputs)
        for one, other in zip(pytree.tree_leaves(fast), pytree.tree_leaves(slow), strict=True):
            if isinstance(one, torch.Tensor) and not torch.allclose(one, other):
                raise AssertionError("optimization changes the scripted module's output")

    def enable_channels_last(self) -> None:
        """Keeps the module's weights, and pictures, with channels last."""
        self._converted(
            lambda value: value.dim() == 4, memory_format=torch.channels_last
        )  # batch, channels, height, width

    def enable_bf16(self) -> None:
        """Keeps the module and its inputs in bfloat16."""
        self._converted(torch.is_floating_point, dtype=torch.bfloat16)

    def enable_fp16(self) -> None:
        """Keeps the module and its inputs in float16."""
        self._converted(torch.is_floating_point, dtype=torch.float16)

    enable_fp16_half = enable_fp16  # its name in 2022

    def enable_amp(self) -> None:
        """Runs the module in mixed precision: folders enter `amp_context` around it."""
        kind = torch.bfloat16 if self.device == "cpu" else torch.float16
        self.amp_context = lambda: torch.autocast(str(self.device), dtype=kind)

    def _converted(self, which: Callable[[torch.Tensor], bool], **to: Any) -> None:
        def convert(value: Any) -> Any:
            wanted = isinstance(value, torch.Tensor) and which(value)
            return value.to(**to) if wanted else value

        try:
            self.set_module(self.get_module()[0].to(**to))
        except RuntimeError as error:
            warnings.warn(f"{self.name}: {error}", stacklevel=2)
            return
        if hasattr(self, "example_inputs"):
            self.example_inputs = pytree.tree_map(convert, self.example_inputs)


def _called(module: Any, inputs: Any) -> Any:
    return module(**inputs) if isinstance(inputs, dict) else module(*inputs)
