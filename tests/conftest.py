"""Fixtures of all tests: the command line as users run it, on a fresh artifact root."""

import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kept_root import kept_root
from tests_support import Run, run_cbs

from openxla.benchmark.installation import ROOT_DIR_VARIABLE

TESTS = Path(__file__).parent
PLUGIN = TESTS / "plugin"

# A process of `--numprocesses` runs whole files. Long files come first, to finish in time.
_LONGEST = ("test_documents.py", "test_backends.py", "test_adversarial_programs.py")
_LAST = ("harness", "browser", "faults", "gpu", "unit")


def pytest_configure(config: pytest.Config) -> None:
    """Prepares the process of the tests and all processes that they start.

    Each process of `--numprocesses` gets its own CPU: threads must not compete for them.
    """
    # An out-of-tree package registers through entry points, as users' packages do.
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(PLUGIN) not in given:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PLUGIN), *given]))
    # A shell starts background jobs with SIGINT ignored, and their children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[int(worker.removeprefix("gw")) % len(cpus)]})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts files by how long they take, and marks the tests in the lists `slow` or `nightly`."""
    for tier in ("slow", "nightly"):
        listed = set((TESTS / f"{tier}_tests.txt").read_text(encoding="utf-8").splitlines())
        for item in items:
            if not listed.isdisjoint((item.nodeid, item.nodeid.partition("[")[0])):
                item.add_marker(tier)

    def place(item: pytest.Item) -> tuple[bool, int]:
        folder = item.path.relative_to(TESTS).parts[0]
        return item.path.name not in _LONGEST, _LAST.index(folder) if folder in _LAST else -1

    items.sort(key=place)


@pytest.fixture
def planted(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Returns a function that records the planted faults of other people's benchmarks."""

    def record(*names: str) -> None:
        for name in names:
            record_property("planted", name)

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how many faults were planted or injected, and how many affected nothing else."""
    ends: dict[str, dict[str, bool]] = {"planted": {}, "injected": {}}
    for report in (r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind)):
        for name, fault in report.user_properties:
            if name in ends:
                ends[name][fault] = ends[name].get(fault, True) and report.passed
    if found := ends["planted"]:
        text = f"other people's benchmarks: {len(found)} planted, {sum(found.values())} caught"
        terminalreporter.write_line(text)
    if found := ends["injected"]:
        lost = len(found) - sum(found.values())
        text = f"faults of the outside world: {len(found)} injected, {lost or 'nothing'} lost"
        terminalreporter.write_line(text)


@pytest.fixture(scope="session")
def session_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a `cbs` process, with an artifact root of this session."""
    root = tmp_path_factory.mktemp("root")
    return {**os.environ, ROOT_DIR_VARIABLE: str(root), "COLUMNS": "200"}


@pytest.fixture(scope="session")
def kept_environment() -> Iterator[dict[str, str]]:
    """Variables with an artifact root that outlives the session, for the suite's models.

    Models that misbehave need another root: they could make a truth that stays.
    """
    with kept_root() as root:
        yield {**os.environ, ROOT_DIR_VARIABLE: str(root), "COLUMNS": "200"}


@pytest.fixture(scope="session")
def environment(session_environment: dict[str, str]) -> dict[str, str]:
    """Variables of the processes that most tests start; `frameworks` has the kept root."""
    return session_environment


@pytest.fixture(scope="session")
def recipes_environment(environment: dict[str, str]) -> dict[str, str]:
    """Variables of a `cbs` process that finds the packages of recipes."""
    packages = Path(__file__).parents[1] / ".recipes.venv"
    if not packages.is_dir():
        pytest.skip(f"{packages.name} is not there: ./scripts/test.sh makes it")
    return {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}{os.pathsep}{packages}"}


@pytest.fixture
def cbs_run(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Run]:
    """Runs `cbs run` to its end, in the test's own folder."""
    return functools.partial(run_cbs, directory=tmp_path, environment=environment)
