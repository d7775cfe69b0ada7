"""What a check found, and which checks there are."""

from types import MappingProxyType
from typing import Literal

import attrs

State = Literal["ok", "failed", "not_applicable", "not_run"]

# In the order in which they are shown, with what each asks.
CHECKS = MappingProxyType(
    {
        "definitions": "do cases of the catalogue use it?",
        "docstrings": "does everything public say what it is?",
        "requirements": "is requirements.txt there, and satisfied by what is installed?",
        "install": "can requirements.txt be installed into a fresh environment?",
        "runs elsewhere": "does it run as a module, from another directory?",
        "types": "do inputs and outputs have the declared shapes and types?",
        "repeatable": "does the same seed give the same output in another process?",
        "seed": "does another seed give another output?",
        "signal": "do the outputs carry signal?",
        "memory": "is its memory free again when it is dropped?",
        "agreement": "do its implementations agree in float64?",
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
