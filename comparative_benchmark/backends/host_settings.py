"""What a stack says that it computes with on the host."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import attrs


@attrs.frozen(kw_only=True)
class HostSettings:
    """Effective settings of a stack on the host; None where it does not tell.

    Attributes:
      threads: that one operator is shared among.
      inter_op_threads: that independent operators run on.
      threads_told_by: what was asked for these counts.
      blas: the library of its products, with the kernels that it chose.
    """

    threads: int | None = None
    inter_op_threads: int | None = None
    threads_told_by: str | None = None
    blas: str | None = None


def threads_by_name(root: Path = Path("/")) -> Mapping[str, int]:
    """Returns how many threads of this process have each name; names are cut to 15 characters.

    A stack that has no other answer names the threads of its pool.
    """
    found: Counter[str] = Counter()
    for task in (root / "proc/self/task").glob("*/comm"):
        try:
            found[task.read_text(encoding="utf-8", errors="replace").rstrip("\n")] += 1
        except OSError:  # it has ended
            continue
    return found


def pool_size(name: str, root: Path = Path("/")) -> int | None:
    """Returns how many threads there are whose names begin so; None without any."""
    return sum(n for told, n in threads_by_name(root).items() if told.startswith(name)) or None
