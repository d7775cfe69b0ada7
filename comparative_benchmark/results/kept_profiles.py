"""Where profiles of results are kept, beside the results file."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from comparative_benchmark.backends.operator_profile import FILE, OperatorProfile
from comparative_benchmark.results.record import Result

# What `cbs run --profile -o r.json` and `cbs explain r.json` call the folder: `r.profiles`.
SUFFIX = ".profiles"
# The file name of what `cbs explain` has profiled; longer ones are cut.
_LONGEST = 200


def folder_for(results: Path, result: Result) -> Path:
    """Returns where `cbs explain` keeps the profile of a result of that file."""
    return results.with_suffix(SUFFIX) / _place(result)


def find(folder: Path, result: Result) -> Path | None:
    """Returns the operators of a result; None where no profile of it tells them.

    What `cbs explain` took goes before what `cbs run --profile` left.

    Args:
      folder: that holds the results file.
      result: of that file.
    """
    for path in _candidates(folder, result):
        if path.is_file():
            return path
    return None


def load(folder: Path, result: Result) -> OperatorProfile | None:
    """Returns the operators of a result; None where no profile of it tells them.

    Raises:
      OSError, ValueError: the file cannot be read, or is none.
    """
    path = find(folder, result)
    return None if path is None else read(path)


def read(path: Path) -> OperatorProfile:
    """Returns the profile of a file.

    Raises:
      OSError, ValueError: it cannot be read, or is none.
    """
    found = msgspec.json.decode(path.read_bytes(), type=OperatorProfile)
    numbers = [(each.us, each.calls, each.flops, each.bytes) for each in found.operators]
    if any(n is not None and not (math.isfinite(n) and n >= 0) for row in numbers for n in row):
        raise ValueError(f"{path}: a time or count is negative or not finite")
    return found


def _candidates(folder: Path, result: Result) -> Iterator[Path]:
    yield from sorted(folder.glob(f"*{SUFFIX}/{_place(result)}/{FILE}"))
    if not result.profile or FILE not in result.profile.files:
        return
    parts = Path(result.profile.directory).parts
    starts = [place for place, part in enumerate(parts) if part.endswith(SUFFIX)]
    # A file that someone else wrote names folders of profiles, and nothing outside of them.
    if starts and ".." not in parts:
        yield folder.joinpath(*parts[starts[-1] :], FILE)
        yield Path(result.profile.directory) / FILE


def _place(result: Result) -> Path:
    """Returns the folder of a result's profile: names of a file may be anything."""
    names = (result.run_id, f"explain-{'-'.join(result.key)}")
    return Path(*(re.sub(r"[^\w+-]+", "-", name)[:_LONGEST] for name in names))
