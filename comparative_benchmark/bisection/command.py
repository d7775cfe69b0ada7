"""`cbs bisect`: from options to the first bad release or commit, and the exit code."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from comparative_benchmark.backends.api import UnknownBackendError
from comparative_benchmark.bisection import releases, story
from comparative_benchmark.bisection.bisection import Bisection, Outcome, as_json
from comparative_benchmark.bisection.commits import Repository
from comparative_benchmark.bisection.environments import EnvironmentPool
from comparative_benchmark.bisection.journal import Journal
from comparative_benchmark.bisection.judging import Metric, sought_threshold
from comparative_benchmark.bisection.oracle import BisectError, Candidate, CaseAnswer
from comparative_benchmark.bisection.racing import RaceOracle
from comparative_benchmark.bisection.recipes import Recipes, companions_of, lock_of
from comparative_benchmark.bisection.releases import Installer, PipInstaller
from comparative_benchmark.machine.host import usable_cpus
from comparative_benchmark.machine.memory import default_limit_bytes
from comparative_benchmark.results.codec import ResultsFileError
from comparative_benchmark.runs.session import Limits
from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trial import parse_competitors
from comparative_benchmark.stats.sampling_rule import SamplingRule
from comparative_benchmark.terminal.console import Console
from comparative_benchmark.terminal.options import (
    EXIT_MISSING,
    EXIT_OK,
    UsageError,
    find_device,
    select,
)
from openxla.benchmark.def_types import DeviceSpec

STATE = "bisection.json"


def run(options: argparse.Namespace, installer: Installer | None = None) -> int:
    """Bisects, says what came of it and returns the exit code.

    Args:
      options: of the command line.
      installer: in place of pip.

    Returns:
      0 if one first bad candidate was found and confirmed; 3 if not: the bad end is not bad, some
      candidates could not be judged, or no two neighbours differ.

    Raises:
      UsageError: something that the user typed cannot be, or an end cannot be judged.
    """
    _check(options)
    console = Console(verbose=options.verbose, suites=options.suite)
    try:
        outcome = _bisect(options, installer or PipInstaller(), console)
    except (BisectError, ResultsFileError, UnknownBackendError) as error:
        raise UsageError(str(error)) from error
    finally:
        console.close()
    if options.json:
        print(json.dumps(as_json(outcome), indent=2))
    else:
        print(story.tell(outcome, Metric(options.metric), what=_subject(options)))
    return EXIT_OK if outcome.found else EXIT_MISSING


def _check(options: argparse.Namespace) -> None:
    if options.git is None and options.package is None:
        raise UsageError("say what to bisect: --package NAME, or --git REPO --build CMD")
    if (options.git is None) != (options.build is None):
        raise UsageError("--git and --build go together: where commits are, and how one is built")
    if options.attempts < 1 or (options.processes is not None and options.processes < 1):
        raise UsageError("--attempts and --processes are numbers from 1 on")


def _subject(options: argparse.Namespace) -> str:
    return str(options.package or options.git.resolve().name)


def _bisect(options: argparse.Namespace, installer: Installer, console: Console) -> Outcome:
    device = find_device(options.device)
    competitors = parse_competitors(options.backend, device.accelerator_type)
    cases = select(options)
    lock = lock_of(options, competitors)
    companions = companions_of(options, lock)
    folder = (options.output or _default_folder(options)).absolute()
    metric = Metric(options.metric)
    repository = None
    if options.git is not None:
        repository = Repository(
            path=options.git.absolute(), build=options.build, timeout_s=options.build_timeout
        )
    with Journal(folder / STATE, _question(options, lock, companions)) as journal:
        if not journal.candidates:
            journal.start(_candidates(options, installer, repository))
        console.say(_plan(options, journal))
        named = [*([options.package] if options.package else []), *companions]
        oracle = RaceOracle(
            cases=cases,
            competitors=competitors,
            metric=metric,
            settings=_settings(options, device),
            pool=EnvironmentPool(
                folder / "environments",
                installer,
                log_dir=folder / "logs",
                python=options.python or sys.executable,
                keep=options.keep,
                say=console.say,
            ),
            recipe=Recipes(
                package=options.package,
                lock=lock,
                companions=companions,
                installer=installer,
                repository=repository,
            ),
            folder=folder / "races",
            observer=console,
            bisected=frozenset(str(canonicalize_name(name)) for name in named),
        )
        outcome = Bisection(
            oracle,
            journal,
            say=console.say,
            threshold=_threshold(options, metric),
            attempts=options.attempts,
            everything=options.everything,
        ).run()
        journal.conclude(as_json(outcome))
    console.say(f"state: {journal.path}")
    return outcome


def _candidates(
    options: argparse.Namespace, installer: Installer, repository: Repository | None
) -> list[Candidate]:
    if repository is not None:
        return repository.commits_between(options.good, options.bad)
    return releases.releases_between(
        options.package,
        options.good,
        options.bad,
        # An end may be a pre-release although those between are not asked for.
        installer.versions(options.package, prereleases=True),
        prereleases=options.pre,
    )


def _threshold(
    options: argparse.Namespace, metric: Metric
) -> Callable[[Sequence[CaseAnswer]], float | None]:
    def threshold(bad: Sequence[CaseAnswer]) -> float | None:
        given: float | None = options.threshold
        return given if given is not None else sought_threshold(bad, metric)

    return threshold


def _question(
    options: argparse.Namespace, lock: str, companions: Mapping[str, str | None]
) -> Mapping[str, Any]:
    """Returns all that answers depend on; a state file serves for the same question only."""
    return {
        "package": options.package,
        "git": str(options.git.absolute()) if options.git else None,
        "build": options.build,
        "good": options.good,
        "bad": options.bad,
        "prereleases": options.pre,
        "name": options.name,
        "tags": options.tag,
        "framework": options.framework,
        "suites": options.suite,
        "backend": options.backend,
        "device": options.device,
        "metric": options.metric,
        "threshold": options.threshold,
        "companions": companions,
        "requirements": lock.splitlines(),
        "python": options.python,
        "threads": options.threads,
    }


def _settings(options: argparse.Namespace, device: DeviceSpec) -> RunSettings:
    return RunSettings(
        device=device,
        sampling=SamplingRule(
            effect=options.effect,
            min_processes=options.processes or 3,
            max_processes=options.processes or 10,
            trial_budget_s=options.trial_budget,
            seed=options.seed,
        ),
        threads=options.threads or usable_cpus(),
        limits=Limits(
            deadline_s=options.timeout,
            memory_bytes=options.memory_limit or default_limit_bytes(),
        ),
    )


def _default_folder(options: argparse.Namespace) -> Path:
    name = f"{_subject(options)}-{options.good}-{options.bad}"
    return Path("results") / "bisect" / re.sub(r"[^\w.+-]+", "_", name)


def _plan(options: argparse.Namespace, journal: Journal) -> str:
    """Returns what is ahead, in a line."""
    good, *between, bad = journal.candidates
    kind = "commit" if options.git is not None else "release"
    line = (
        f"{good.short} .. {bad.short}: {len(between)} {kind}{_s(between)} between, at most about "
    )
    line += f"{len(between).bit_length() + 2} races"
    if done := journal.comparisons:
        line += f"; going on after {len(done)} comparison{_s(done)}"
    return line


def _s(items: Sequence[Any]) -> str:
    return "" if len(items) == 1 else "s"
