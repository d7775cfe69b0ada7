"""Whether two results are of one and the same compiled program, run by the same packages.

Why that matters, and where it can err: docs/design/0005-unchanged-programs.md.
"""

import json
from typing import Any

from comparative_benchmark.results.case import UNKNOWN, Case
from comparative_benchmark.results.codec import plain
from comparative_benchmark.results.record import Metrics
from comparative_benchmark.results.settings import setting_differences, settings


def program_digest(metrics: Metrics) -> str | None:
    """Returns the SHA-256 of the program that all processes of a result compiled.

    None where the stack gives none, as eager execution, and where processes compiled different
    programs (autotuning, say): the result is then of a mixture, and the next one of another.
    """
    digest = metrics.program.artifact_sha256
    told = [process.artifact_sha256 for process in metrics.processes or ()]
    # Older files do not say it of each process.
    return digest if not any(told) or set(told) == {digest} else None


def same_program(old: Case, new: Case) -> bool:
    """Tells whether workload, competitor, device and compiled program are the same, and known.

    Eager PyTorch compiles nothing: there the packages are the program, which is the same if
    `surroundings` finds no difference. Of other stacks without a digest nothing is known.
    """
    digests = [program_digest(case.metrics) for case in (old, new)]
    if old.key != new.key or digests[0] != digests[1]:
        return False
    definition = new.result.definition
    is_eager = (definition.backend, definition.compiler) == ("pt_inductor", "eager")
    return digests[0] is not None or (is_eager and not new.metrics.throughput)


def surroundings(old: Case, new: Case) -> str | None:
    """Says what of the software around a program differs, or cannot be told; None if nothing.

    Packages, settings, interpreter and harness run the program and are part of its speed; of the
    machine only model and thread count are looked at. Settings that one side does not tell, as
    older files, count as equal.
    """
    facts = [_facts(case) for case in (old, new)]
    for name in facts[0] | facts[1]:
        values = [side.get(name) for side in facts]
        if values[0] != values[1]:
            return f"{name} {values[0]} vs {values[1]}"
    if old.revision != new.revision:
        return f"harness revision {old.revision} vs {new.revision}"
    return next(setting_differences(old.metrics, new.metrics), None) or unidentified(new)


def unidentified(case: Case) -> str | None:
    """Says why it cannot be told what ran the program; None if it can.

    A development version does not say which build it is: two builds of a runtime, with a change
    between them that an engineer wants to measure, may call themselves the same.
    """
    if not case.result.versions:
        return "package versions are unknown"
    for name, version in case.result.versions.items():
        if "dev" in version:
            return f"{name} {version} may name several builds"
    return "the machine is unknown" if case.machine == UNKNOWN else None


def fingerprint(case: Case) -> str:
    """Returns a text that is equal where `surroundings` finds no difference, but of the harness.

    Files that do not tell of settings differ from those that do.
    """
    facts = {**_facts(case), "settings": settings(case.metrics)}
    return json.dumps(facts, sort_keys=True, default=str)


def _facts(case: Case) -> dict[str, Any]:
    definition = case.result.definition
    return {
        **case.result.versions,
        "options": definition.options,
        "environment": definition.environment and plain(definition.environment),
        "Python": case.python,
        "threads": case.threads,
        "machine": case.machine,
    }
