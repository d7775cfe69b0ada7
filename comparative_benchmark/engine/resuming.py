"""Earlier runs of a results file, from which a new run continues."""

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Self

import attrs
from msgspec import UNSET

from comparative_benchmark.analysis.stats.planning import CompileOnly, FixedCounts, SamplingRule
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results import journal
from comparative_benchmark.results.record import Result, ResultKey, Status
from comparative_benchmark.results.results_file import ResultsFile


@attrs.define(kw_only=True)
class EarlierRuns:
    """Results and processes of earlier runs that a new run can use.

    Attributes:
      settings: settings of the run, with a seed.
      done: results that need not be measured again.
    """

    settings: RunSettings
    done: dict[ResultKey, Result]
    _interrupted: list[journal.Interrupted]
    _undecided: list[journal.Interrupted]
    _continued: frozenset[ResultKey]
    _say: Callable[[str], None]
    _resume: bool

    @classmethod
    def of(
        cls,
        trials: Sequence[Trial],
        settings: RunSettings,
        results: ResultsFile,
        say: Callable[[str], None],
        *,
        resume: bool,
    ) -> Self:
        """Reads the results file and the journals of its runs.

        Args:
          trials: trials of the run.
          settings: settings of the run; a missing seed is taken from an earlier run, or drawn.
          results: the results file.
          say: reports each journal that cannot be read, in one line.
          resume: whether the run may use earlier results and processes.
        """
        old = results.results()
        stored = {(result.run_id, result.key) for result in old}
        runs, complaints = journal.interrupted_runs(results.path, stored)
        for complaint in complaints:
            say(complaint)
        undecided = [run for run in runs if run.undecided]
        continued = _continued(trials, settings, undecided) if resume else frozenset()
        to_continue = [run for run in undecided if any(e.key in continued for e in run.entries)]
        interrupted = [run for run in runs if not run.undecided]
        return cls(
            settings=_with_seed(settings, (*interrupted, *to_continue) if resume else ()),
            done=_done(trials, settings, old, continued) if resume else {},
            interrupted=interrupted,
            undecided=undecided,
            continued=continued,
            say=say,
            resume=resume,
        )

    def joining(self, now: journal.Settings) -> list[journal.Interrupted]:
        """Returns the earlier runs that a run with these settings continues, oldest first.

        Reports them, and why other runs are not continued.
        """
        joined = []
        for run in self._interrupted:
            many = "es" * (len(run.entries) != 1)
            count = f"{len(run.entries)} process{many} from an interrupted run in {run.path}"
            torn = "; the file's incomplete last line was skipped" if run.torn else ""
            if not self._resume:
                self._say(f"found {count}: add --resume to continue it{torn}")
            elif different := run.settings.differences(now):
                self._say(f"ignoring {count}: {'; '.join(different)}{torn}")
            else:
                self._say(f"continuing with {count}{torn}")
                joined.append(run)
        for run in self._undecided:
            entries = [entry for entry in run.entries if entry.key in self._continued]
            count = f"an undecided race in {run.path} (processes: {len(entries)})"
            if not entries:
                continue
            if different := run.settings.differences(now, stopping=False):
                self._say(f"cannot add to {count}: {'; '.join(different)}")
            else:
                self._say(f"adding to {count}")
                joined.append(run)
        self._interrupted = [run for run in joined if not run.undecided]
        return joined

    def forget(self, keys: Collection[ResultKey]) -> None:
        """Removes the processes of trials whose new results are stored."""
        for run in (*self._interrupted, *self._undecided):
            run.forget(keys)


def _continued(
    trials: Sequence[Trial], settings: RunSettings, undecided: Sequence[journal.Interrupted]
) -> frozenset[ResultKey]:
    """Returns the trials of undecided races that have fewer processes than requested."""
    rule = settings.sampling
    if not isinstance(rule, SamplingRule):
        return frozenset()
    counts = Counter(entry.key for run in undecided for entry in run.entries)
    few = {t.workload.digest for t in trials if 0 < counts[t.key] < rule.min_processes}
    return frozenset(t.key for t in trials if counts[t.key] and t.workload.digest in few)


def _done(
    trials: Sequence[Trial],
    settings: RunSettings,
    old: Sequence[Result],
    continued: Collection[ResultKey],
) -> dict[ResultKey, Result]:
    # The name of a user model stays the same when its file changes.
    digests = {trial.key: trial.workload.digest for trial in trials}
    alone = {trial.key for trial in trials if trial.case.model.model_impl.own_process}
    # A later failure of the same program counts more than an earlier success.
    found = {
        r.key: r
        for r in old
        if r.key not in continued
        and r.definition.outputs == settings.outputs
        and r.definition.workload.digest == digests.get(r.key)
        and r.measured.compile_only == isinstance(settings.sampling, CompileOnly)
        # Such models used to share a process, which could have corrupted their truth.
        and (r.key not in alone or r.measured.truth_source is not UNSET)
    }
    return {key: r for key, r in found.items() if r.status is Status.OK}


def _with_seed(settings: RunSettings, runs: Sequence[journal.Interrupted]) -> RunSettings:
    """Returns settings with a seed: the given, an earlier run's, or a random one."""
    rule = settings.sampling
    if isinstance(rule, FixedCounts) or rule.seed is not None:
        return settings
    # The newest, because journals that do not fit any more are never removed.
    newest = sorted(runs, key=lambda run: run.path, reverse=True)
    seeds = [run.settings.sampling.get("seed") for run in newest]
    drawn = next((seed for seed in seeds if isinstance(seed, int)), secrets.randbelow(2**31))
    return attrs.evolve(settings, sampling=attrs.evolve(rule, seed=drawn))
