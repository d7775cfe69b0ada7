"""What one iteration of a workload has to do, whichever compiler does it."""

import attrs
from attrs import validators

_count = attrs.field(
    default=None,
    validator=validators.optional([validators.instance_of(int), validators.ge(0)]),
)
_text = attrs.field(default=None, validator=validators.optional(validators.instance_of(str)))


@attrs.frozen(kw_only=True)
class WorkloadCost:
    """Arithmetic and compulsory traffic of one iteration, counted from the model, not measured.

    Attributes:
      flops: floating-point operations of matrix products and convolutions, a multiply-add counted
        as two and products with padding counted, too: the usual "model FLOPs" (Chowdhery et al.
        2022, "PaLM", appendix B). Sums, norms and activations are left out. Frameworks write these
        in different ways, and only so do all implementations of a model have the same number.
      bytes: weights that are read, inputs and outputs, each once, in the model's own type. Of a
        weight that is only ever indexed (an embedding) the rows taken count, not the table. No
        program moves less, unless weights stay in a cache from one iteration to the next.
      flops_source, bytes_source: who counted what, or why nobody could.
    """

    flops: int | None = _count
    flops_source: str | None = _text
    bytes: int | None = _count
    bytes_source: str | None = _text

    @classmethod
    def unknown(cls, reason: str) -> "WorkloadCost":
        """Returns a cost that nobody could count."""
        return cls(flops_source=reason, bytes_source=reason)

    @classmethod
    def counted(cls, flops: int, size_bytes: int, *, of: str) -> "WorkloadCost":
        """Returns a cost that was counted from a form of the model, as its jaxpr."""
        return cls(
            flops=flops,
            flops_source=f"{of}: matrix products and convolutions",
            bytes=size_bytes,
            bytes_source=f"{of}: weights read, inputs and outputs, each once",
        )
