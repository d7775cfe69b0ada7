"""Right programs that a careless judge would call wrong: PyTorch modules, by class.

Each is a function of tensors, or a module, with its inputs. Kernels of other stacks add in another
order, approximate exp and erf in another way, or round at other places.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch
from torch import nn
from torch.nn import functional

SEED = 11


@attrs.frozen(kw_only=True)
class Program:
    """A program whose output must be right in every stack.

    Attributes:
      kind: its class, such as `statistics`.
      name: within the class.
      make: gives the module and its inputs.
    """

    kind: str
    name: str
    make: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"


class Function(nn.Module):
    """Calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def programs() -> list[Program]:
    """Returns all programs, each class by itself."""
    return [
        Program(kind=kind, name=name, make=make)
        for kind, group in GROUPS.items()
        for name, make in group()
    ]


_Named = Iterator[tuple[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]]]


def _of(function: Callable[..., Any], *inputs: Callable[[], torch.Tensor]) -> Callable[[], Any]:
    def make() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        torch.manual_seed(SEED)
        return Function(function).eval(), tuple(value() for value in inputs)

    return make


def _module(
    module: Callable[[], nn.Module], *inputs: Callable[[], torch.Tensor], dtype: Any = None
) -> Callable[[], Any]:
    def make() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        torch.manual_seed(SEED)
        made = module().eval()
        values = tuple(value() for value in inputs)
        if dtype is None:
            return made, values
        return made.to(dtype), tuple(v.to(dtype) if v.is_floating_point() else v for v in values)

    return make


def _normal(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape)


def _uniform(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.rand(*shape)


def _integers(high: int, *shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(0, high, shape)


def _pixels(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(0, 256, shape, dtype=torch.uint8)


def _mlp(*widths: int, activation: Callable[[], nn.Module] = nn.GELU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


def _statistics() -> _Named:
    x = _normal(64, 512)
    yield "mean", _of(lambda x: x.mean(-1), x)
    yield "mean-of-all", _of(lambda x: x.mean(), x)
    yield "variance", _of(lambda x: x.var(-1), x)
    yield "standard-deviation", _of(lambda x: x.std(0), x)
    yield "median-free-extremes", _of(lambda x: (x.amax(-1), x.amin(-1)), x)
    yield "logsumexp", _of(lambda x: torch.logsumexp(x * 8, -1), x)
    yield "norms", _of(lambda x: (x.norm(dim=-1), x.abs().sum(-1)), x)
    yield "correlation", _of(lambda x: torch.matmul(x, x.T) / x.shape[-1], x)
    yield (
        "cosine",
        _of(lambda x, y: functional.cosine_similarity(x, y, dim=-1), x, _normal(64, 512)),
    )
    yield ("loss", _module(lambda: Function(functional.mse_loss), x, _normal(64, 512)))
    yield ("cross-entropy", _of(functional.cross_entropy, _normal(32, 100), _integers(100, 32)))
    yield "skewness", _of(lambda x: ((x - x.mean(-1, keepdim=True)) ** 3).mean(-1), x)
    yield "ranges", _of(lambda x: x.amax(-1) - x.amin(-1), x)
    yield "weighted-mean", _of(lambda x: (x * torch.softmax(x, -1)).sum(-1), x)
    yield "standardised", _of(lambda x: (x - x.mean(0)) / x.std(0), x)


def _masks() -> _Named:
    x = _normal(16, 50)

    def filled(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: torch.where((torch.arange(50) % 7 == 0), torch.full_like(x, value), x)

    yield "filled-1e9", _of(filled(-1e9), x)
    yield "filled-1e4", _of(filled(-1e4), x)
    yield "filled-minus-infinity", _of(filled(-math.inf), x)
    yield "filled-least", _of(filled(torch.finfo(torch.float32).min), x)
    yield "logarithm-of-zero", _of(lambda x: torch.log(torch.relu(x)), x)
    yield "nan-by-design", _of(torch.log, x)
    yield "quotient-of-zeros", _of(lambda x: torch.relu(x) / torch.relu(x), x)
    yield (
        "causal",
        _of(
            lambda q: torch.softmax(
                (q @ q.transpose(-1, -2)).masked_fill(torch.ones(32, 32).triu(1).bool(), -1e9), -1
            ),
            _normal(4, 32, 16),
        ),
    )
    yield "all-true", _of(lambda x: (x > -100, x * 2), x)


def _integer_outputs() -> _Named:
    yield (
        "classes",
        _module(
            lambda: nn.Sequential(_mlp(32, 64, 100), Function(lambda y: y.argmax(-1))),
            _normal(64, 32),
        ),
    )
    yield "equal-classes", _of(lambda x: (x * 0).sum(-1).long(), _normal(8, 4))
    yield (
        "top-k",
        _module(
            lambda: nn.Sequential(_mlp(32, 64, 100), Function(lambda y: y.topk(5, -1))),
            _normal(16, 32),
        ),
    )
    yield "comparison", _of(lambda x, y: x > y, _normal(32, 32), _normal(32, 32))
    yield "rounded", _of(lambda x: torch.round(x * 100).to(torch.int32), _normal(64, 64))
    yield "floor", _of(lambda x: torch.floor(x * 7).to(torch.int64), _normal(64, 64))
    yield (
        "sign",
        _module(
            lambda: nn.Sequential(_mlp(16, 32, 8), Function(lambda y: (y > 0).to(torch.int32))),
            _normal(32, 16),
        ),
    )
    yield "count", _of(lambda x: (x > 0.5).sum(-1), _normal(32, 100))
    yield (
        "buckets",
        _of(lambda x: (x[..., None] > torch.linspace(-2, 2, 9)).sum(-1), _normal(64, 64)),
    )
    yield "sums-of-integers", _of(lambda x: x.sum(-1), _integers(1000, 32, 64))


def _ties() -> _Named:
    levels = _integers(5, 16, 40)
    yield "sorted-levels", _of(lambda x: torch.argsort(x, -1), levels)
    yield "levels-from-the-top", _of(lambda x: torch.sort(x, -1, descending=True), levels)
    yield "top-of-levels", _of(lambda x: x.topk(5, -1), _integers(50, 16, 200))
    yield "top-with-zeros", _of(lambda x: torch.relu(x).topk(40, -1), _normal(8, 64))
    yield "best-of-pairs", _of(lambda x: torch.cat([x, x], -1).topk(7, -1), _normal(16, 40))
    yield "best-level", _of(lambda x: x.argmax(-1), levels)


def _images() -> _Named:
    image = _pixels(2, 32, 32, 3)

    def filtered(x: torch.Tensor) -> torch.Tensor:
        blurred = functional.avg_pool2d(x.permute(0, 3, 1, 2).float() / 255, 3, 1, 1)
        return (blurred * 255).round().to(torch.uint8)

    def resized(x: torch.Tensor) -> torch.Tensor:
        small = functional.interpolate(
            x.permute(0, 3, 1, 2).float(), size=(24, 24), mode="bilinear"
        )
        return small.round().clamp(0, 255).to(torch.uint8)

    yield "blurred-pixels", _of(filtered, image)
    yield "resized-pixels", _of(resized, image)
    yield "normalised", _of(lambda x: (x.permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.225, image)
    yield (
        "resized",
        _of(
            lambda x: functional.interpolate(
                x, scale_factor=2.0, mode="bilinear", align_corners=False
            ),
            _uniform(2, 3, 16, 16),
        ),
    )
    yield (
        "decoder",
        _module(
            lambda: nn.Sequential(
                nn.Conv2d(8, 16, 3, padding=1),
                nn.ReLU(),
                nn.ConvTranspose2d(16, 3, 2, 2),
                Function(lambda y: (torch.sigmoid(y) * 255).round().to(torch.uint8)),
            ),
            _normal(2, 8, 16, 16),
        ),
    )
    yield (
        "convolutions",
        _module(
            lambda: nn.Sequential(
                nn.Conv2d(3, 16, 3, 2), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 8, 1)
            ),
            _uniform(2, 3, 33, 33),
        ),
    )
    yield (
        "pooled",
        _module(
            lambda: nn.Sequential(
                nn.Conv2d(3, 16, 1),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(16, 5),
            ),
            _uniform(2, 3, 24, 24),
        ),
    )
    yield (
        "boxes-and-scores",
        _module(
            lambda: nn.Sequential(
                _mlp(16, 64, 40),
                Function(
                    lambda y: torch.cat([y[:, :20] * 300 + 400, torch.sigmoid(y[:, 20:] * 6)], -1)
                ),
            ),
            _normal(32, 16),
        ),
    )


def _long_sums() -> _Named:
    yield "mean-of-200000", _of(lambda x: x.mean(-1), _uniform(4, 200_000))
    yield "sum-of-200000", _of(lambda x: x.sum(-1), _normal(4, 200_000))
    yield "cumulative-100000", _of(lambda x: torch.cumsum(x, -1), _uniform(2, 100_000))
    yield "product-of-4096", _of(lambda x, y: x @ y, _normal(4, 4096), _normal(4096, 8))
    yield "one-number-of-4096", _module(lambda: nn.Linear(4096, 1), _normal(1, 4096))
    yield "softmax-of-50000", _of(lambda x: torch.softmax(x * 3, -1), _normal(2, 50_000))
    yield (
        "distances",
        _of(lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1), _normal(16, 256), _normal(24, 256)),
    )
    yield (
        "prefix-means",
        _of(lambda x: torch.cumsum(x, -1) / torch.arange(1, 2049), _normal(8, 2048)),
    )


def _small_outputs() -> _Named:
    yield "one-number", _module(lambda: nn.Linear(16, 1), _normal(1, 16))
    yield "deep-score", _module(lambda: _mlp(32, 64, 64, 64, 1), _normal(1, 32))
    yield "two-numbers", _module(lambda: _mlp(32, 64, 2), _normal(1, 32))
    yield "energy", _of(lambda x: (x**2).sum() - x.sum() ** 2 / x.numel(), _normal(64))
    yield "zero-dimensional", _of(lambda x: (x.sum(), x.prod(), x * 2), _normal(4, 8))
    yield "empty", _of(lambda x: (x[:, 8:], x * 3), _normal(4, 8))
    yield "constant", _of(lambda x: (torch.ones_like(x) * 0.1, x + 1), _normal(4, 8))
    yield "sums-to-one", _of(lambda x: torch.softmax(x, -1).sum(-1), _normal(16, 64))
    yield (
        "divergence-of-equals",
        _of(
            lambda x: functional.kl_div(
                torch.log_softmax(x, -1), torch.softmax(x + 1e-4, -1), reduction="batchmean"
            ),
            _normal(64, 64),
        ),
    )
    yield "nearly-cancelled", _of(lambda x: x.sum() - x.flip(0).sum() + x[0], _normal(256))


def _activations() -> _Named:
    x = _normal(64, 128)
    for name, function in (
        ("sigmoid", lambda x: torch.sigmoid(x * 10)),
        ("gelu", lambda x: functional.gelu(x * 3)),
        ("tanh-gelu", lambda x: functional.gelu(x * 3, approximate="tanh")),
        ("silu", lambda x: functional.silu(x * 8)),
        ("softplus", lambda x: functional.softplus(x * 8)),
        ("erf", lambda x: torch.erf(x * 3)),
        ("tanh", lambda x: torch.tanh(x * 4)),
        ("exp", lambda x: torch.exp(x * 12)),
        ("cold-softmax", lambda x: torch.softmax(x * 60, -1)),
        ("log-softmax", lambda x: torch.log_softmax(x * 20, -1)),
        ("mish", lambda x: functional.mish(x * 6)),
        ("sine", lambda x: torch.sin(x * 30)),
        ("powers", lambda x: x**3 + x.abs().sqrt()),
    ):
        yield name, _of(function, x)


def _deep_16_bit() -> _Named:
    for label, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        yield (
            f"mlp-{label}",
            _module(lambda: _mlp(64, *[128] * 12, 32), _normal(16, 64), dtype=dtype),
        )
        yield (
            f"norm-{label}",
            _module(
                lambda: nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64)),
                _normal(16, 64),
                dtype=dtype,
            ),
        )
        yield (
            f"at-the-largest-{label}",
            _of(
                lambda x, d=dtype: x * (torch.finfo(d).max / 1.5),
                lambda d=dtype: torch.randn(16, 64).to(d),
            ),
        )
        yield (
            f"softmax-{label}",
            _of(lambda x: torch.softmax(x, -1), lambda d=dtype: torch.randn(16, 64).to(d)),
        )
        yield f"mean-{label}", _of(lambda x: x.mean(-1), lambda d=dtype: torch.randn(64, 256).to(d))
        yield (
            f"variance-{label}",
            _of(
                lambda x: (x * x).mean(-1) - x.mean(-1) ** 2,
                lambda d=dtype: (torch.randn(64, 256) + 3).to(d),
            ),
        )
        yield (
            f"classes-{label}",
            _module(
                lambda: nn.Sequential(_mlp(64, 128, 50), Function(lambda y: y.argmax(-1))),
                _normal(64, 64),
                dtype=dtype,
            ),
        )


class _Mixture(nn.Module):
    """The two best of four experts for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.softmax(self.gate(x), -1).topk(2, -1)
        every = torch.stack([expert(x) for expert in self.experts], 1)
        picked = torch.gather(every, 1, chosen[..., None].expand(-1, -1, 16))
        return (picked * weights[..., None]).sum(1)


class _Recurrent(nn.Module):
    """A recurrent layer whose first state is made in forward."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(8, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(1, x.size(0), 16)
        outputs, _ = self.layer(x, (state, state) if isinstance(self.layer, nn.LSTM) else state)
        return self.head(outputs[:, -1])


class _Greedy(nn.Module):
    """Four steps of a text, each with the token of the step before."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.mix = nn.Linear(32, 32)
        self.head = nn.Linear(32, 40)

    def forward(self, token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.zeros(token.shape[0], 32)
        found = []
        for _ in range(4):
            state = torch.tanh(self.mix(state) + self.embed(token))
            logits = self.head(state)
            token = logits.argmax(-1)
            found.append(token)
        return torch.stack(found, 1), logits


def _networks() -> _Named:
    yield "mixture-of-experts", _module(_Mixture, _normal(32, 16))
    yield "lstm", _module(lambda: _Recurrent(nn.LSTM), _normal(4, 10, 8))
    yield "gru", _module(lambda: _Recurrent(nn.GRU), _normal(4, 10, 8))
    yield "greedy-text", _module(_Greedy, _integers(40, 6))
    yield (
        "encoder",
        _module(
            lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True),
            _normal(2, 12, 32),
        ),
    )
    yield (
        "point-set",
        _module(
            lambda: nn.Sequential(
                _mlp(3, 32, 64), Function(lambda y: y.amax(1)), nn.Linear(64, 10)
            ),
            _normal(4, 100, 3),
        ),
    )
    yield (
        "embedding-bag",
        _module(
            lambda: nn.Sequential(nn.Embedding(50, 16), Function(lambda y: y.mean(1))),
            _integers(50, 8, 12),
        ),
    )
    yield (
        "made-table",
        _of(lambda x: x + torch.sin(torch.arange(64, dtype=torch.float32) / 7), _normal(4, 64)),
    )
    yield "float-call", _of(lambda x: x.float() / 255 - 0.5, _pixels(4, 64))


GROUPS: dict[str, Callable[[], _Named]] = {
    "statistics": _statistics,
    "masks": _masks,
    "integers": _integer_outputs,
    "ties": _ties,
    "images": _images,
    "long-sums": _long_sums,
    "small-outputs": _small_outputs,
    "activations": _activations,
    "deep-16-bit": _deep_16_bit,
    "networks": _networks,
}
