"""The list of checks; each reads one fact, and provides a command that prints the same fact.

Checks do not guess: unavailable facts are `unknown`. `System.root` replaces `/`, so that tests can
use recorded files.
"""

from comparative_benchmark.analysis.machine.other_processes import Observed, observe
from comparative_benchmark.maintenance.doctor._cpu import (
    cpu_quota,
    governor,
    heat,
    smt,
    turbo,
    virtualisation,
)
from comparative_benchmark.maintenance.doctor._machine import (
    aslr,
    clock_source,
    disk,
    huge_pages,
    measure_timer,
    memory,
    swap,
    timer,
)
from comparative_benchmark.maintenance.doctor._nvidia import (
    nvidia,
    parse_nvidia_csv,
    throttle_reasons,
)
from comparative_benchmark.maintenance.doctor._others import foreign_processes, load, steal
from comparative_benchmark.maintenance.doctor.system import Finding, Status, System

__all__ = [
    "Finding",
    "Observed",
    "Status",
    "System",
    "aslr",
    "clock_source",
    "cpu_quota",
    "disk",
    "examine",
    "foreign_processes",
    "governor",
    "heat",
    "huge_pages",
    "load",
    "measure_timer",
    "memory",
    "nvidia",
    "observe",
    "parse_nvidia_csv",
    "smt",
    "steal",
    "swap",
    "throttle_reasons",
    "timer",
    "turbo",
    "virtualisation",
]


def examine(system: System) -> list[Finding]:
    """Returns all findings; takes a little over a second."""
    observed = observe(system.root)
    return [
        virtualisation(system),
        governor(system),
        turbo(system),
        smt(system),
        load(system),
        foreign_processes(observed),
        steal(observed),
        cpu_quota(system),
        heat(system),
        clock_source(system),
        timer(),
        aslr(system),
        huge_pages(system),
        memory(system),
        swap(system),
        disk(system),
        *nvidia(system),
    ]
