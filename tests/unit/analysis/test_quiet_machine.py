"""Before a race, the user is informed about other processes, and can wait."""

import os
import subprocess
import sys

import attrs
import pytest

from comparative_benchmark.analysis.machine import conditions, other_processes
from comparative_benchmark.terminal.quiet_machine import wait_for_quiet


def observed(share, busiest=()):
    before = conditions.take()
    found = conditions.between(before, conditions.take(), own_cpu_ms=1.0, wall_ms=1.0, threads=1)
    return other_processes.Observed(
        conditions=attrs.evolve(found, foreign_cpu_share=share), busiest=tuple(busiest)
    )


class Machine:
    """Observations of a machine, one after the other."""

    def __init__(self, *shares):
        self._left = [observed(share, [(42, "cc1plus", 0.98)]) for share in shares]
        self.said = []

    def wait(self, **how):
        wait_for_quiet(self.said.append, observe=lambda: self._left.pop(0), **how)
        return len(self._left)


@pytest.mark.parametrize("share", [None, 0.0, 0.1])
def test_a_quiet_machine_is_not_spoken_of(share):
    machine = Machine(share)
    assert machine.wait(ask=lambda _: pytest.fail("asked")) == 0
    assert machine.said == []


def test_a_busy_machine_is_told_where_nobody_is_asked():
    machine = Machine(0.47)
    machine.wait()
    [line] = machine.said
    assert line.startswith(
        "other processes use 47% of the CPU time: cc1plus (pid 42) 98% of a CPU;"
    )
    assert line.endswith("the race may end without verdicts (see `cbs doctor`)")


@pytest.mark.parametrize("answer", ["", "y\n", "Yes\n"])
def test_a_person_may_wait_until_the_machine_is_quiet(answer):
    machine = Machine(0.47, 0.3, 0.2, 0.02, 0.5)
    assert machine.wait(ask=lambda _: answer) == 1
    assert machine.said[-1] == "the machine is quiet"


@pytest.mark.parametrize("answer", ["n\n", " No "])
def test_a_person_may_continue(answer):
    machine = Machine(0.47, 0.3)
    assert machine.wait(ask=lambda _: answer) == 1


def test_a_process_that_spins_is_seen():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            os.sched_setaffinity(spinning.pid, {min(os.sched_getaffinity(0))})
            seen = other_processes.observe()
        finally:
            spinning.kill()
    assert seen.conditions.foreign_cpu_share > 0.1
