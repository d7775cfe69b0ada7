"""What voirfiles import of milabench's `benchrun`, its torchrun: rates come by the output here."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def forward_voir_file() -> "Iterator[None]":
    """Leaves everything as it is: the file of voir's events is open in the script already."""
    yield
