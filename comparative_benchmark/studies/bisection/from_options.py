"""Runs a bisection according to command-line options, with any kind of oracle."""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.studies.bisection import releases
from comparative_benchmark.studies.bisection.bisection import Bisection, Outcome, as_json
from comparative_benchmark.studies.bisection.commits import Repository
from comparative_benchmark.studies.bisection.environments import EnvironmentPool
from comparative_benchmark.studies.bisection.journal import Journal
from comparative_benchmark.studies.bisection.judging import sought_threshold
from comparative_benchmark.studies.bisection.oracle import (
    BisectError,
    Candidate,
    CaseAnswer,
    Oracle,
)
from comparative_benchmark.studies.bisection.recipes import Recipes, companions_of
from comparative_benchmark.studies.bisection.releases import Installer, PipInstaller
from comparative_benchmark.terminal.options import UsageError

STATE = "bisection.json"


@attrs.frozen(kw_only=True)
class Subject:
    """Properties of one kind of bisection.

    Attributes:
      lock: text of the requirements of all environments, apart from the candidate.
      question: inputs that determine the answers, apart from candidates and environments.
      noise: smaller relative changes are ignored.
      oracle: creates the oracle from the environments, their recipes and a folder.
      name: prefix of the folder's name, if the user specifies none.
    """

    lock: str
    question: Mapping[str, Any]
    noise: float
    oracle: Callable[[EnvironmentPool, Recipes, Path], Oracle]
    name: str = ""


def bisect(
    options: argparse.Namespace,
    subject: Subject,
    *,
    say: Callable[[str], None],
    installer: Installer | None = None,
) -> Outcome:
    """Bisects, or resumes the same bisection if it was interrupted.

    Args:
      options: the options of `options.add_search_options`, and `--output`.
      subject: the kind of bisection.
      say: receives progress messages.
      installer: replaces pip.

    Raises:
      UsageError: options conflict, or an end cannot be judged.
    """
    installer = installer or PipInstaller()
    repository = None
    if options.git is not None:
        repository = Repository(
            path=options.git.absolute(), build=options.build, timeout_s=options.build_timeout
        )
    companions = companions_of(options, subject.lock)
    folder = (options.output or _default_folder(options, subject)).absolute()
    pool = EnvironmentPool(
        folder / "environments",
        installer,
        log_dir=folder / "logs",
        python=options.python or sys.executable,
        keep=options.keep,
        say=say,
    )
    recipes = Recipes(
        package=options.package,
        lock=subject.lock,
        companions=companions,
        installer=installer,
        repository=repository,
    )

    def threshold(bad: Sequence[CaseAnswer]) -> float | None:
        return options.threshold or sought_threshold(bad, subject.noise)

    try:
        with Journal(folder / STATE, _question(options, subject, companions)) as journal:
            if not journal.candidates:
                journal.start(_candidates(options, installer, repository))
            say(_plan(journal))
            outcome = Bisection(
                subject.oracle(pool, recipes, folder),
                journal,
                say=say,
                threshold=threshold,
                attempts=options.attempts,
                everything=options.everything,
            ).run()
            journal.conclude(as_json(outcome))
    except BisectError as error:
        raise UsageError(str(error)) from error
    say(f"state: {journal.path}")
    return outcome


def check(options: argparse.Namespace) -> None:
    """Raises `UsageError` if the package or repository to bisect is not fully specified."""
    if options.git is None and options.package is None:
        raise UsageError("specify what to bisect: --package NAME, or --git REPO --build CMD")
    if (options.git is None) != (options.build is None):
        raise UsageError(
            "--git and --build must be given together: the repository and its build command"
        )


def bisected(options: argparse.Namespace) -> str:
    """Returns the package, or else the name of the repository."""
    return str(options.package or options.git.resolve().name)


def _candidates(
    options: argparse.Namespace, installer: Installer, repository: Repository | None
) -> list[Candidate]:
    if repository is not None:
        return repository.commits_between(options.good, options.bad)
    return releases.releases_between(
        options.package,
        options.good,
        options.bad,
        # The ends may be pre-releases even if those between them are excluded.
        installer.versions(options.package, prereleases=True),
        prereleases=options.pre,
    )


def _question(
    options: argparse.Namespace, subject: Subject, companions: Mapping[str, str | None]
) -> Mapping[str, Any]:
    """Returns all inputs that determine the answers; a state file is valid only for these."""
    return {
        **subject.question,
        "package": options.package,
        "git": str(options.git.absolute()) if options.git else None,
        "build": options.build,
        "good": options.good,
        "bad": options.bad,
        "prereleases": options.pre,
        "metric": options.metric,
        "threshold": options.threshold,
        "companions": companions,
        "requirements": subject.lock.splitlines(),
        "python": options.python,
    }


def _default_folder(options: argparse.Namespace, subject: Subject) -> Path:
    parts = (subject.name, bisected(options), options.good, options.bad)
    name = "-".join(part for part in parts if part)
    return Path("results") / "bisect" / re.sub(r"[^\w.+-]+", "_", name)


def _plan(journal: Journal) -> str:
    """Returns a line about the remaining work."""
    good, *between, bad = journal.candidates
    kind = "commit" if good.is_commit else "release"
    line = (
        f"{good.short} .. {bad.short}: {len(between)} {kind}{_s(between)} in between, about "
        f"{len(between).bit_length() + 2} comparisons at most"
    )
    if done := journal.comparisons:
        line += f"; resuming after {len(done)} comparison{_s(done)}"
    return line


def _s(items: Sequence[Any]) -> str:
    return "" if len(items) == 1 else "s"
