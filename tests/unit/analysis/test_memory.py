"""Memory and processes in /proc."""

import os
import subprocess
import sys

from comparative_benchmark.analysis.machine import other_processes


def test_the_default_limit_is_at_least_the_reserve_and_less_than_the_machine():
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 2**30 <= other_processes.default_limit_bytes() < total


def test_resident_memory_counts_descendants_and_is_zero_for_a_process_that_is_gone():
    child = "x = b'x' * (100 << 20); print(flush=True); input()"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline()  # the child has its memory
        assert other_processes.resident_bytes(process.pid) > 100 << 20
        process.communicate(b"\n", timeout=20)
    assert other_processes.resident_bytes(process.pid) == 0


def test_only_marked_processes_are_killed():
    def start(value: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "CBS_UNIT_TEST_MARK": value},
            start_new_session=True,
        )

    with start("a1b2") as marked, start("a1b2-other") as other:
        # Both have started their programs, so their environments are in place.
        assert marked.stdout.readline()
        assert other.stdout.readline()
        other_processes.kill_marked("CBS_UNIT_TEST_MARK", "a1b2")
        assert marked.wait(timeout=20) == -9
        assert other.poll() is None
        other.communicate(b"\n", timeout=20)
    assert other.returncode == 0
