"""`cbs userbenchmark bisect`: the search, state and environments of `cbs bisect`."""

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from comparative_benchmark.bisection import recipes, releases
from comparative_benchmark.bisection.bisection import Bisection, Outcome, as_json
from comparative_benchmark.bisection.commits import Repository
from comparative_benchmark.bisection.environments import EnvironmentPool
from comparative_benchmark.bisection.journal import Journal
from comparative_benchmark.bisection.oracle import BisectError, Candidate, CaseAnswer
from comparative_benchmark.bisection.releases import Installer, PipInstaller
from comparative_benchmark.terminal.options import EXIT_MISSING, EXIT_OK, UsageError
from comparative_benchmark.userbenchmarks.bisecting import UserbenchmarkOracle
from comparative_benchmark.userbenchmarks.discovery import Userbenchmark

STATE = "bisection.json"
_DISTRIBUTION = "common-benchmark-suite"
_NOISE = 0.03


def run(
    options: argparse.Namespace, benchmark: Userbenchmark, installer: Installer | None = None
) -> int:
    """Bisects, says what came of it and returns the exit code: 0 if a first bad one was found.

    Raises:
      UsageError: something that the user typed cannot be, or an end cannot be judged.
    """
    pattern = _check(options)
    try:
        outcome = _bisect(options, benchmark, pattern, installer or PipInstaller())
    except BisectError as error:
        raise UsageError(str(error)) from error
    if options.json:
        print(json.dumps(as_json(outcome), indent=2))
    else:
        print(_told(outcome, benchmark))
    return EXIT_OK if outcome.found else EXIT_MISSING


def _check(options: argparse.Namespace) -> re.Pattern[str]:
    if options.git is None and options.package is None:
        raise UsageError("say what to bisect: --package NAME, or --git REPO --build CMD")
    if (options.git is None) != (options.build is None):
        raise UsageError("--git and --build go together: where commits are, and how one is built")
    if options.runs < 3:
        raise UsageError("--runs is 3 or more: fewer runs of a side have no interval")
    if options.attempts < 1:
        raise UsageError("--attempts is a number from 1 on")
    try:
        return re.compile(options.metric)
    except re.error as error:
        raise UsageError(f"--metric {options.metric!r} is not an expression: {error}") from error


def _bisect(
    options: argparse.Namespace,
    benchmark: Userbenchmark,
    pattern: re.Pattern[str],
    installer: Installer,
) -> Outcome:
    lock = _requirements(options)
    companions = recipes.companions_of(options, lock)
    folder = (options.output or _default_folder(options, benchmark)).absolute()
    repository = None
    if options.git is not None:
        repository = Repository(
            path=options.git.absolute(), build=options.build, timeout_s=options.build_timeout
        )
    with Journal(folder / STATE, _question(options, benchmark, lock, companions)) as journal:
        if not journal.candidates:
            journal.start(_candidates(options, installer, repository))
        oracle = UserbenchmarkOracle(
            benchmark=benchmark,
            arguments=tuple(options.arguments),
            pattern=pattern,
            pool=EnvironmentPool(
                folder / "environments",
                installer,
                log_dir=folder / "logs",
                python=options.python or sys.executable,
                keep=options.keep,
                say=_say,
            ),
            recipe=recipes.Recipes(
                package=options.package,
                lock=lock,
                companions=companions,
                installer=installer,
                repository=repository,
            ),
            folder=folder / "runs",
            runs=options.runs,
            threshold=options.threshold or _NOISE,
            timeout_s=options.timeout,
        )
        outcome = Bisection(
            oracle,
            journal,
            say=_say,
            threshold=lambda bad: options.threshold or _sought(bad),
            attempts=options.attempts,
            everything=options.everything,
        ).run()
        journal.conclude(as_json(outcome))
    _say(f"state: {journal.path}")
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
        installer.versions(options.package, prereleases=True),
        prereleases=options.pre,
    )


def _requirements(options: argparse.Namespace) -> str:
    """Returns what environments hold: what was asked for, and what the suite itself imports.

    Raises:
      UsageError: the file cannot be read.
    """
    own = [Requirement(line) for line in requires(_DISTRIBUTION) or []]
    own = [item for item in own if item.marker is None or item.marker.evaluate({"extra": ""})]
    lines = [str(item) for item in own]
    if options.requirements is not None:
        try:
            lines.append(options.requirements.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--requirements {options.requirements}: {error}") from error
    return "\n".join(lines)


def _sought(bad: Sequence[CaseAnswer]) -> float | None:
    """Returns half of the smallest change at the bad end, on a log scale; None for a status."""
    ratios = [item.ratio.estimate for item in bad if item.ratio]
    return max(_NOISE, math.sqrt(min(ratios)) - 1) if ratios else None


def _question(
    options: argparse.Namespace,
    benchmark: Userbenchmark,
    lock: str,
    companions: Mapping[str, str | None],
) -> Mapping[str, Any]:
    """Returns all that answers depend on; a state file serves for the same question only."""
    return {
        "userbenchmark": str(benchmark.folder),
        "arguments": list(options.arguments),
        "package": options.package,
        "git": str(options.git.absolute()) if options.git else None,
        "build": options.build,
        "good": options.good,
        "bad": options.bad,
        "prereleases": options.pre,
        "metric": options.metric,
        "threshold": options.threshold,
        "runs": options.runs,
        "companions": dict(companions),
        "requirements": lock.splitlines(),
        "python": options.python,
    }


def _default_folder(options: argparse.Namespace, benchmark: Userbenchmark) -> Path:
    what = options.package or options.git.resolve().name
    name = f"{benchmark.name}-{what}-{options.good}-{options.bad}"
    return Path("results") / "bisect" / re.sub(r"[^\w.+-]+", "_", name)


def _told(outcome: Outcome, benchmark: Userbenchmark) -> str:
    """Returns the outcome in sentences, the answer first; then each metric, good end to bad end."""
    candidates, where = outcome.candidates, outcome.conclusion
    if where is None:
        head = f"{candidates[-1]} is not worse than {candidates[0]}: {outcome.ends.answer.value}"
    elif where.suspects:
        between = ", ".join(candidates[index].short for index in where.suspects)
        head = (
            f"worse after {candidates[where.last_good]} and not later than "
            f"{candidates[where.first_bad]}; could not be judged: {between}"
        )
    else:
        first, last = candidates[where.first_bad], candidates[where.last_good]
        head = f"{first} is the first bad one; {last} the last good one"
        if not outcome.found and outcome.neighbours is not None:
            head += f"; but side by side the two are {outcome.neighbours.answer.value}"
    cases = outcome.ends.finding.cases if outcome.ends.finding else ()
    return "\n".join([f"{benchmark.name}: {head}", *(f"  {case}" for case in cases)])


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
