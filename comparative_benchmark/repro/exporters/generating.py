"""How `run.py` calls a model that is one program, or prefill and decode."""

from collections.abc import Sequence

from comparative_benchmark.backends.resident_programs import GenerationPlan

_ONE = """\
program, inputs = opened("{name}"), check.inputs()


def run():
    return program(*inputs)

"""
_TWO = """\
from generate import generate  # noqa: E402

prefill, decode, inputs = opened("{prefill}"), opened("{decode}"), check.inputs()


def run():
    return generate(
        prefill, decode, inputs, steps={steps}, first_position={first}, changes={changes}
    )

"""


def names(plan: GenerationPlan | None, ending: str) -> list[str]:
    """Returns the names of the program's files."""
    stems = ("model",) if plan is None else ("prefill", "decode")
    return [stem + ending for stem in stems]


def call(plan: GenerationPlan | None, files: Sequence[str]) -> str:
    """Returns the lines of `run.py` that open and call programs of these files."""
    if plan is None:
        return _ONE.format(name=files[0])
    return _TWO.format(
        prefill=files[0],
        decode=files[1],
        steps=plan.steps,
        first=plan.first_position,
        changes=plan.changes,
    )


def modules(plan: GenerationPlan | None) -> tuple[str, ...]:
    """Returns the templates that these lines import."""
    return () if plan is None else ("generate.py",)
