"""How a stack holds the outputs of a run: in memory that is there already, or in new memory."""

from typing import Literal, TypeAlias

import attrs

OutputMode: TypeAlias = Literal["bound", "allocated"]


@attrs.frozen(kw_only=True)
class OutputRule:
    """What a backend can do with outputs.

    Attributes:
      modes: what it can do; first what the stack's own users have. `bound`: every run writes to
        the same memory. `allocated`: each run gets new memory, inside the timed region.
      reason: why there is no other mode; empty where there are both.
    """

    modes: tuple[OutputMode, ...]
    reason: str = ""


ALLOCATED_ONLY = "a call returns new outputs, and takes no memory to write them to"
