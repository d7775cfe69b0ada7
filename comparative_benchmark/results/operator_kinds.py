"""What an operator does, in one vocabulary for the names of all stacks."""

import re

from comparative_benchmark.backends.operator_profile import Operator

PRODUCTS = "matrix products"
RUNTIME = "runtime"
OTHER = "other"

# Parts of names, by kind. The first kind that matches counts: what takes most of a fused kernel's
# time comes first.
_PARTS = {
    RUNTIME: (r"^runtime\b",),
    "attention": ("attention", "flash", "sdpa"),
    "convolutions": ("conv(?!ert)",),
    PRODUCTS: (
        *("matmul", "gemm", r"\bb?mm\b", r"\bdot\b", "addmm", "linear", "mmt4d", "contract"),
        *("einsum", "fully.?connected", "inner.?product"),
    ),
    "normalisation": ("(layer|batch|group|rms|instance).?norm", r"\bmvn\b", "normaliz"),
    "softmax": ("softmax",),
    "embeddings and gathers": (
        *("embedding", "gather", "index.?select", "scatter", r"\bindex\b", r"\btake\b"),
    ),
    "pooling": ("pool",),
    "reductions": (
        *("reduc", r"\bsum\b", r"\bmean\b", r"\bmax\b", r"\bmin\b", "arg.?max", "cum.?sum"),
        *(r"\bvar\b", "top.?k", "sort"),
    ),
    "elementwise": (
        *("gelu", "relu", "silu", "tanh", "erf", "sigmoid", "exponential", r"\bexp\b", "sqrt"),
        *("logistic", "subgraph", r"\bpow", "add", r"\bsub", "mul", "div", "neg", "select"),
        *("where", "compare", "elementwise", "eltwise", "activation", r"\blog\b", "clamp"),
        *(r"\bfused\b", r"\babs\b", "maximum", "minimum", "square"),
    ),
    "copies and layouts": (
        *("copy", "transpose", "permute", "reshape", "reorder", "concat", r"\bcat\b", "slice"),
        *("pack", r"\bpad", "convert", "cast", "contiguous", "clone", r"\bto\b", "view"),
        *("expand", "broadcast", "empty", "fill", "split", "memcpy", "memset", "strided"),
        *("squeeze", r"\bt\b", "resize", "detach", "identity", "stack"),
    ),
}
_KINDS = {kind: re.compile("|".join(parts), re.IGNORECASE) for kind, parts in _PARTS.items()}


def kind_of(operator: Operator) -> str:
    """Returns the kind of an operator, by what it does or else by its name."""
    for text in filter(None, (operator.does, operator.name)):
        # Words of a name are apart: `_` would count as a letter.
        words = f"{text} {text.replace('_', ' ')}"
        for kind, pattern in _KINDS.items():
            if pattern.search(words):
                return kind
    return OTHER
