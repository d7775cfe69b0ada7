"""Races that are interrupted at any moment: finished processes are kept and not run again."""

import errno
import json
import math
import os
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.engine import race, runner
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.results import journal
from comparative_benchmark.results.comparing.comparison import paired_rounds
from comparative_benchmark.results.outcome import ProcessRecord
from comparative_benchmark.results.record import Block, ExecutionEnvironment, Status
from comparative_benchmark.results.results_file import ResultsFile, ResultsFileError, converted
from openxla.benchmark.artifacts.workload_store import WorkloadCost
from openxla.benchmark.devices import HOST_CPU

COMPETITORS = ("jax_xla", "xla_hlo", "iree:llvm-cpu")
RULE = SamplingRule(min_processes=3, max_processes=3, min_rounds=3, max_rounds=3)
MORE = attrs.evolve(RULE, min_processes=5, max_processes=5)
HOST = {
    "cpu_model": "a CPU",
    "architecture": "x86_64",
    "logical_cpus": 2,
    "physical_cpus": 2,
    "usable_cpus": 2,
    "threads": 2,
    "governor": None,
    "memory_bytes": 1,
    "memory_available_bytes": 1,
    "load_average": [0, 0, 0],
    "system": "Linux",
    "python": "3.11",
    "hostname": "here",
}
ENVIRONMENT = converted(
    {"python_environment": [{"name": "jax", "version": "1"}], "host": HOST, "git_revision": "abc"},
    ExecutionEnvironment,
)


@pytest.fixture
def machine(tmp_path, monkeypatch, make_trial, finished):
    """Runs a race of three competitors whose workers only sleep; each process is identifiable."""
    started = tmp_path / "started"
    good = finished().processes[0]

    class Worker:
        """A participant without a process; its latencies are a number that no other has."""

        def __init__(self, trial, artifacts, settings, plan, open_session):
            self.trial, self.plan, self.exports = trial, plan, {}
            self.alive, self.loaded, self.iterations_per_block = True, False, 1
            self.token = float(int.from_bytes(os.urandom(4)) + 1)
            self.record = attrs.evolve(
                good,
                blocks=[],
                cold=plan.cold,
                workload=trial.workload.digest,
                final_verification=None,
            )

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def load(self):
            self.loaded = True
            with started.open("a") as file:
                file.write(f"{self.trial.competitor} {self.plan.replicate} {self.token}\n")

        def measure_block(self, index, iterations, *, refresh=False):
            time.sleep(0.0005)
            self.record.blocks.append(
                Block(round=index, latencies_ms=(self.token,), cpu_ms=1.0, wall_ms=1.0)
            )

        def finish(self):
            time.sleep(0.002)
            self.record.final_verification = good.final_verification

        def why_enough_rounds(self, rule):
            return None

        def resident_bytes(self):
            return 1

        def warm_up_until_steady(self, rule):
            pass

    Worker.pause = Worker.resume = Worker.compile = lambda self: None
    trials = [make_trial(competitor=name) for name in COMPETITORS]
    artifacts = SimpleNamespace(
        digests={"input": "0" * 64},
        directory=tmp_path,
        origin=None,
        cost=WorkloadCost(),
        without_float64=None,
        truth_check=None,
        truth_source=None,
        not_ranked=None,
    )
    preparation = SimpleNamespace(
        artifacts={trials[0].workload.digest: artifacts},
        failures={},
        run=lambda *_: None,
        has_tried=lambda _: True,
        completed=lambda trial: trial,
    )
    monkeypatch.setattr(race, "Participant", Worker)
    monkeypatch.setattr(runner, "Preparation", lambda *_: preparation)
    monkeypatch.setattr(runner, "_obstacle", lambda *_: None)
    monkeypatch.setattr(runner, "execution_environment", lambda *_: machine.environment)
    monkeypatch.setattr(runner, "lacks_processes", lambda _: machine.undecided)
    output = tmp_path / "results.json"

    def run(*, resume=True, rule=RULE, until=math.inf):
        observer = SimpleNamespace(
            say=machine.said.append, preparing=None, race_started=lambda *_: None,
            process_finished=lambda _: None,
            trial_finished=lambda *_: None,
        )  # fmt: skip
        return runner.execute(
            trials,
            RunSettings(device=HOST_CPU, sampling=rule, log_dir=tmp_path / "logs", until=until),
            ResultsFile(output),
            observer,
            command=["cbs"],
            resume=resume,
        )

    def run_and_kill(after_s):
        """Kills the run after a while, unless it has ended; returns whether it was killed."""
        child = os.fork()
        if not child:
            try:
                run()
            finally:
                # Nothing may continue as a second test process, whatever was raised.
                os._exit(0)
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])

    def run_until(count, *, with_rounds=False):
        """Interrupts the run when that many processes have ended; returns which.

        Rounds of the others are lost unless `with_rounds`.
        """
        finish, ended = Worker.finish, []

        def interrupted(self):
            if len(ended) == count:
                raise KeyboardInterrupt
            ended.append(str(self.trial.competitor))
            finish(self)

        with monkeypatch.context() as patch:
            patch.setattr(Worker, "finish", interrupted)
            if not with_rounds:
                patch.setattr(journal.Journal, "append_round", lambda *_: None)
            with pytest.raises(KeyboardInterrupt):
                run()
        return ended

    machine = SimpleNamespace(
        run=run,
        run_until=run_until,
        run_and_kill=run_and_kill,
        environment=ENVIRONMENT,
        undecided=False,
        artifacts=artifacts,
        output=output,
        folder=journal.folder_of(output),
        said=[],
        trials=trials,
        started=lambda: [line.split() for line in started.read_text().splitlines()],
        kept=lambda finished=False: {
            entry.process.blocks[0].latencies_ms[0]
            for run in journal.interrupted_runs(
                output, {(result.run_id, result.key) for result in ResultsFile(output).results()}
            )[0]
            for entry in run.entries
            if not (finished and entry.partial)
        },
    )
    return machine


def tokens(results):
    """The number of each process, by competitor."""
    return {
        result.definition.competitor: [
            p.blocks[0].latencies_ms[0] for p in result.measured.processes
        ]
        for result in results
    }


# The child of the fork only sleeps and writes files: threads that a framework has started in the
# test process, for tests before this one, do not matter to it.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_no_finished_process_is_lost_or_run_again_wherever_the_run_is_killed(machine):
    moments = random.Random(4)
    kills = 0
    finished = set()
    while kills < 20:
        killed = machine.run_and_kill(moments.uniform(0.005, 0.06))
        kills += killed
        kept = machine.kept(finished=True)
        done = machine.output.exists() and ResultsFile(machine.output).results()
        # Processes that had ended before are still there.
        assert finished <= kept | {t for of in tokens(done or ()).values() for t in of}
        finished |= kept
        if done:
            # The race came to its end: the next one begins, with nothing left over.
            machine.run()
            assert not machine.folder.exists()
            finished = set()
            machine.output.unlink()
    results = machine.run()
    found = tokens(results)
    assert {result.status for result in results} == {Status.OK}
    assert [len(of) for of in found.values()] == [3, 3, 3]
    assert finished <= {token for of in found.values() for token in of}
    assert not machine.folder.exists()


def test_a_trial_with_two_of_three_processes_gets_one_more(machine):
    machine.run_until(6)
    assert ResultsFile(machine.output).results() == ()
    [path] = machine.folder.iterdir()
    assert any(f"saved 6 finished processes in {path}" in line for line in machine.said)
    kept = machine.kept()
    assert len(kept) == 6
    before = len(machine.started())
    results = machine.run()
    assert [line[1] for line in machine.started()[before:]] == ["2", "2", "2"]
    assert kept < {token for of in tokens(results).values() for token in of}
    # The caches of the first run are gone with it.
    assert [len(result.measured.compile.cold_ms) for result in results] == [2, 2, 2]


def test_rounds_of_unfinished_processes_are_kept(machine):
    machine.run_until(4, with_rounds=True)
    [path] = machine.folder.iterdir()
    assert machine.said[-1] == (
        "saved 4 finished processes and 3 rounds from 2 unfinished processes in "
        f"{path}; --resume completes their trials"
    )
    kept, before = machine.kept(), len(machine.started())
    assert len(kept) == 6
    results = machine.run()
    assert [line[1] for line in machine.started()[before:]] == ["2", "2", "2"]
    assert kept < {token for of in tokens(results).values() for token in of}
    processes = [process for result in results for process in result.measured.processes]
    assert [len(process.blocks) for process in processes] == 9 * [3]
    assert sorted(process.stop_reason for process in processes)[:2] == 2 * ["interrupted"]


def test_an_unfinished_process_may_be_the_last_of_its_trial(machine):
    machine.run_until(7, with_rounds=True)
    before = len(machine.started())
    results = machine.run()
    assert len(machine.started()) == before
    assert {result.status for result in results} == {Status.OK}
    assert all(result.measured.final_verification for result in results)


def test_a_trial_has_a_finished_process_even_if_the_budget_is_spent(machine):
    machine.run_until(0, with_rounds=True)
    results = machine.run(until=0.0)
    assert {result.status for result in results} == {Status.OK}
    assert [len(result.measured.processes) for result in results] == [2, 2, 2]


@pytest.mark.parametrize("fewest", [3, 4])
def test_a_process_with_too_few_rounds_is_not_kept(machine, monkeypatch, fewest):
    rule, rounds = attrs.evolve(RULE, min_rounds=fewest, max_rounds=9), []

    def interrupted(*arguments):
        append(*arguments)
        rounds.append(arguments)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    append = journal.Journal.append_round
    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "append_round", interrupted)
        with pytest.raises(KeyboardInterrupt):
            machine.run(rule=rule)
    assert "saved 3 rounds from 3 unfinished processes" in machine.said[-1]
    assert len(machine.kept()) == (3 if fewest == 3 else 0)


def test_a_race_without_a_round_keeps_nothing_and_reports_it(machine, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(race.Participant, "measure_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        machine.run()
    assert machine.said[-1] == "nothing saved from the current race: no round was complete"
    assert not machine.folder.exists()


def test_at_most_one_unfinished_process_of_a_trial_is_kept(machine):
    for _ in range(3):
        machine.run_until(0, with_rounds=True)
    results = machine.run()
    for result in results:
        reasons = [process.stop_reason for process in result.measured.processes]
        assert reasons.count("interrupted") == 1
        assert len(reasons) == 3


def test_a_journal_that_is_moved_is_written_again(machine, monkeypatch):
    append = journal.Journal.append

    def moved(self, entry):
        append(self, entry)
        if self.pending == 4:
            self.path.rename(self.path.with_suffix(".moved"))

    monkeypatch.setattr(journal.Journal, "append", moved)
    machine.run_until(6)
    assert any("was moved or removed; writing a new journal" in line for line in machine.said)
    assert len(machine.kept()) == 6


def test_what_is_not_a_file_is_no_journal(machine):
    machine.run_until(5)
    os.mkfifo(machine.folder / "0.jsonl")
    (machine.folder / "1.jsonl").mkdir()
    (machine.folder / "2.jsonl").symlink_to(machine.folder / "2.jsonl")
    assert len(machine.kept()) == 5


def test_a_spent_budget_starts_no_further_process(machine):
    results = machine.run(until=0.0)
    assert {len(result.measured.processes) for result in results} == {1}
    assert {result.measured.stop_reason for result in results} == {"budget"}


def test_more_processes_are_added_to_an_undecided_race(machine):
    machine.undecided = True
    first = tokens(machine.run())
    [path] = machine.folder.iterdir()
    assert path.name.endswith(".undecided.jsonl")
    count = len(machine.started())
    # The user has not requested more.
    assert tokens(machine.run()) == first
    assert len(machine.started()) == count
    machine.undecided = False
    results = machine.run(rule=MORE)
    assert any("(processes: 9)" in line for line in machine.said)
    assert [line[1] for line in machine.started()[count:]] == 3 * ["3"] + 3 * ["4"]
    found = tokens(results)
    assert all(found[name][:3] == first[name] and len(found[name]) == 5 for name in found)
    one, *others = (
        [[block.round for block in process.blocks] for process in result.measured.processes]
        for result in results
    )
    assert all(of == one for of in others)
    assert one[:4] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert not machine.folder.exists()
    assert len({result.measured.race.seed for result in ResultsFile(machine.output).results()}) == 1


def test_an_undecided_race_is_continued_more_than_once(machine):
    machine.undecided = True
    first = tokens(machine.run())
    second = tokens(machine.run(rule=MORE))
    third = tokens(machine.run(rule=attrs.evolve(MORE, min_processes=6, max_processes=6)))
    assert {name: of[:3] for name, of in third.items()} == first
    assert {name: of[:5] for name, of in third.items()} == second
    assert [len(of) for of in third.values()] == [6, 6, 6]
    assert len(list(machine.folder.iterdir())) == 1


def test_an_undecided_race_of_other_settings_is_run_again(machine):
    machine.undecided = True
    first = tokens(machine.run())
    machine.undecided = False
    second = tokens(machine.run(rule=attrs.evolve(MORE, block_ms=20.0)))
    assert any("sampling: block_ms 40.0, now 20.0" in line for line in machine.said)
    assert not any(set(first[name]) & set(second[name]) for name in first)
    assert not machine.folder.exists()


def test_a_new_race_replaces_what_an_undecided_one_has_left(machine):
    machine.undecided = True
    machine.run()
    machine.undecided = False
    machine.run(resume=False)
    assert not machine.folder.exists()
    assert not any("undecided" in line for line in machine.said)


def test_blocks_are_paired_only_with_those_they_were_measured_in_turns_with(machine):
    *_, alone = machine.run_until(4)
    for result in machine.run():
        first, second, third = (
            [block.round for block in process.blocks] for process in result.measured.processes
        )
        assert first == [0, 1, 2]
        assert second == ([3, 4, 5] if result.definition.competitor == alone else [6, 7, 8])
        assert third == [6, 7, 8]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda e: attrs.evolve(e, git_revision="def"), "suite revision abc, now def"),
        (lambda e: attrs.evolve(e, host=attrs.evolve(e.host, threads=1)), "threads 2, now 1"),
        (
            lambda e: attrs.evolve(
                e, python_environment=(attrs.evolve(e.python_environment[0], version="2"),)
            ),
            "jax 1, now 2",
        ),
        (lambda e: attrs.evolve(e, python_environment=()), "jax 1, now absent"),
    ],
)
def test_processes_of_other_settings_are_not_joined(machine, change, said):
    machine.run_until(5)
    kept = machine.kept()
    machine.environment = change(machine.environment)
    results = machine.run()
    assert not kept & {token for of in tokens(results).values() for token in of}
    assert any(said in line and "ignoring " in line for line in machine.said)
    # Only the user may remove them.
    assert machine.kept() == kept


def test_processes_with_other_variables_are_not_joined(machine, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    machine.run_until(5)
    kept = machine.kept()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
    results = machine.run()
    assert not kept & {token for of in tokens(results).values() for token in of}
    assert any("XLA_FLAGS absent, now --xla" in line for line in machine.said)


def test_processes_of_another_program_are_not_joined(machine):
    machine.run_until(5)
    runs, _ = journal.interrupted_runs(machine.output, ())
    facts = {entry.key: entry.facts for run in runs for entry in run.entries}
    [digest] = {trial.workload.digest for trial in machine.trials}
    assert journal.joined(runs, facts, digest).others == 0
    # An edited model may have the same inputs and the same truth.
    assert journal.joined(runs, facts, "1" * 64).others == 5


def test_a_round_after_a_failure_belongs_to_the_next_attempt(machine):
    machine.run_until(1, with_rounds=True)
    [run], _ = journal.interrupted_runs(machine.output, ())
    [ended] = [entry for entry in run.entries if not entry.partial]
    failed = attrs.evolve(ended.process, status=Status.WRONG_OUTPUT, phase="verify_last_run")
    attempt = attrs.evolve(ended.process, blocks=ended.process.blocks[:1])
    lines = [
        attrs.evolve(ended, process=failed),
        attrs.evolve(ended, process=attempt, partial=True),
    ]
    # One round is too few, so the process is dropped.
    assert journal._processes(lines, run.settings) == []


def test_failures_run_again(machine):
    machine.run_until(5)
    [run], _ = journal.interrupted_runs(machine.output, ())
    *others, last = run.entries
    process = attrs.evolve(last.process, status=Status.FAILED, phase="measure", reason="so")
    journal._replace(run.path, run.settings, [*others, attrs.evolve(last, process=process)])
    results = machine.run()
    assert {result.status for result in results} == {Status.OK}
    assert [len(result.measured.processes) for result in results] == [3, 3, 3]
    # Its earlier process counts no more: a trial with a wrong output must not be ranked.
    new = {token for of in tokens(results).values() for token in of}
    for entry in others:
        [token] = {*entry.process.latencies_ms}
        assert (token in new) == (entry.key != last.key)


def test_another_sampling_rule_or_another_truth_joins_nothing(machine):
    machine.run_until(5)
    kept = machine.kept()
    machine.artifacts.digests = {"input": "1" * 64}
    other_truth = machine.run()
    assert any("inputs or truth differ: 5" in line for line in machine.said)
    assert not kept & {token for of in tokens(other_truth).values() for token in of}


def test_without_resume_the_user_is_told_of_what_is_left(machine):
    machine.run_until(5)
    kept = machine.kept()
    machine.run(resume=False)
    assert any(": add --resume to continue it" in line for line in machine.said)
    assert machine.kept() == kept


def test_a_line_that_was_cut_short_costs_itself_alone(machine):
    machine.run_until(5)
    [path] = machine.folder.iterdir()
    kept = machine.kept()
    path.write_bytes(path.read_bytes()[:-7])
    left = machine.kept()
    assert len(left) == len(kept) - 1
    results = machine.run()
    assert left < {token for of in tokens(results).values() for token in of}
    assert any("the file's incomplete last line was skipped" in line for line in machine.said)


def test_a_full_disk_ends_the_run_and_keeps_what_was_written(machine, monkeypatch):
    write, written = os.write, []

    def full(descriptor, data):
        if b'"replicate":1' not in data:
            return write(descriptor, data)
        # A disk takes what fits, and then nothing.
        if not written:
            written.append(write(descriptor, data[:50]))
            return 50
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal.os, "write", full)
    with pytest.raises(ResultsFileError, match="cannot be written: No space left on device"):
        machine.run()
    monkeypatch.setattr(journal.os, "write", write)
    kept = machine.kept()
    assert len(kept) == 3
    [path] = machine.folder.iterdir()
    assert path.read_bytes().endswith(b"\n")
    results = machine.run()
    assert kept < {token for of in tokens(results).values() for token in of}


def test_a_journal_is_not_touched_while_its_run_is_under_way(machine, tmp_path):
    settings = journal.Settings.of("run", "host-cpu", RULE, ENVIRONMENT)
    with journal.Journal(machine.output, settings, print) as kept:
        entry = journal.Entry(
            key=machine.trials[0].key,
            replicate=0,
            wall_s=1.0,
            facts=race.facts_of(machine.trials[0], machine.artifacts),
            process=ProcessRecord(),
        )
        kept.append(entry)
        assert journal.interrupted_runs(machine.output, set()) == ([], [])
    [run] = journal.interrupted_runs(machine.output, set())[0]
    assert run.entries == [entry]
    assert run.settings == settings
    # Results were written, and the program ended before it could empty the journal.
    assert journal.interrupted_runs(machine.output, {("run", entry.key)}) == ([], [])
    assert not machine.folder.exists()


def test_a_process_comes_back_from_its_line_as_it_was(machine, finished):
    settings = journal.Settings.of("run", "host-cpu", RULE, ENVIRONMENT)
    process = finished(
        status=Status.CRASHED, phase="execute", reason="gone", traceback="line 1\nline 2", cold=True
    ).processes[0]
    entry = journal.Entry(
        key=("case", "competitor", "device"),
        replicate=2,
        wall_s=1.5,
        facts=race.facts_of(machine.trials[0], machine.artifacts),
        process=process,
    )
    with journal.Journal(machine.output, settings, print) as kept:
        kept.append(entry)
    [line] = kept.path.read_text().splitlines()[1:]
    assert json.loads(line)["process"]["status"] == "crashed"
    [run] = journal.interrupted_runs(machine.output, set())[0]
    assert run.entries == [entry]


def test_a_file_that_is_not_a_journal_is_named_and_left(machine):
    machine.folder.mkdir()
    foreign = machine.folder / "notes.jsonl"
    foreign.write_text("not JSON\n")
    machine.run()
    assert any(line.startswith(f"{foreign} is not a journal") for line in machine.said)
    assert foreign.read_text() == "not JSON\n"


def test_too_few_replicates_measured_in_turns_are_compared_unpaired(machine):
    machine.run_until(4)
    one, *_, other = machine.run()
    first, second = one.measured, other.measured
    assert len(paired_rounds(first, second) or ()) in (0, 3)
    apart = [
        attrs.evolve(process, blocks=[attrs.evolve(b, round=b.round + 99) for b in process.blocks])
        for process in first.processes[:1]
    ]
    changed = attrs.evolve(first, processes=(*apart, *first.processes[1:]))
    assert paired_rounds(changed, second) is None


@pytest.mark.parametrize("content", [b"", b'{"run_id": "2026'])
def test_a_run_that_ended_before_its_first_line_leaves_nothing(machine, content):
    machine.folder.mkdir()
    (machine.folder / "run.jsonl").write_bytes(content)
    assert journal.interrupted_runs(machine.output, set()) == ([], [])
    assert not machine.folder.exists()


def test_what_a_run_has_stored_of_those_it_went_on_from_is_not_gone_on_from_again(
    machine, monkeypatch
):
    machine.run_until(4)
    machine.run_until(2)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # After the results were written, and before a journal was emptied.
        patch.setattr(journal.Journal, "clear", killed)
        patch.setattr(journal.Interrupted, "forget", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            machine.run()
    assert len(list(machine.folder.iterdir())) == 3
    assert len(ResultsFile(machine.output).results()) == 3
    before = len(machine.started())
    machine.run()
    assert len(machine.started()) == before
    assert not machine.folder.exists()


def test_results_files_have_journals_of_their_own():
    names = [journal.folder_of(Path(name)).name for name in ("r.json", "night.1", "night.2")]
    assert names == ["r.journal", "night.1.journal", "night.2.journal"]


def test_a_journal_that_this_version_cannot_decode_is_kept(machine):
    machine.run_until(5)
    [path] = machine.folder.iterdir()
    head, *_ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + b'{"future": 1}\n')
    machine.run(resume=False)
    assert path.exists()
