"""What a check found, and which checks there are."""

from types import MappingProxyType
from typing import Literal

import attrs

State = Literal["ok", "failed", "not_applicable", "not_run"]

# In the order in which they are shown, with what each asks.
CHECKS = MappingProxyType(
    {
        "definitions": "cases of the catalogue use it",
        "docstrings": "everything public has a docstring",
        "requirements": "requirements.txt exists, and the installed packages satisfy it",
        "install": "requirements.txt can be installed into a fresh environment",
        "runs elsewhere": "it runs as a module from another directory",
        "types": "inputs and outputs have the declared shapes and types",
        "repeatable": "the same seed gives the same output in another process",
        "seed": "another seed gives another output",
        "signal": "outputs are finite and not constant",
        "memory": "its memory is freed when it is dropped",
        "agreement": "its implementations agree in float64",
    }
)


@attrs.frozen(kw_only=True)
class Finding:
    """The outcome of one check of one implementation.

    Attributes:
      check: a key of `CHECKS`.
      framework: folder of the implementation, e.g. `jax`.
      state: what came of it; a check that is `not_run` depends on one that failed.
      detail: what was found, in a sentence.
      fix: what to do about it, where it failed.
    """

    check: str
    framework: str
    state: State
    detail: str
    fix: str | None = None
