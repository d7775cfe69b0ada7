"""The results file, where scripts could not be kept from writing into it."""

from collections.abc import Iterable
from pathlib import Path

from comparative_benchmark.results import codec
from comparative_benchmark.results.codec import ResultsFileError
from openxla.benchmark.files import write_atomically


def restored(path: Path, before: bytes) -> bool:
    """Restores a results file that lacks something which it held; returns whether that was so.

    What other commands have added meanwhile stays.
    """
    due = codec.decode_document(before, str(path))
    try:
        content = path.read_bytes()
        if content == before:
            return False
        now = codec.decode_document(content, str(path))
    except (OSError, ResultsFileError):
        pass
    else:
        if set(_texts(due.runs)) <= set(_texts(now.runs)) and set(_texts(due.benchmarks)) <= set(
            _texts(now.benchmarks)
        ):
            return False
    write_atomically(path, before)
    return True


def _texts(records: Iterable[object]) -> Iterable[bytes]:
    return map(codec.encode, records)
