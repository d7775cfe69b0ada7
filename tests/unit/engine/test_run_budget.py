"""A budget that bounds a run: trials that start, trials that are left out, and resuming."""

import argparse
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from comparative_benchmark.analysis.stats.planning import CompileOnly, SamplingRule
from comparative_benchmark.api.measuring import Measured
from comparative_benchmark.cli.commands import micro
from comparative_benchmark.cli.commands import run as run_command
from comparative_benchmark.engine import resume_command, resuming, runner
from comparative_benchmark.engine.runner import RunBudget
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial, parse_competitors
from comparative_benchmark.errors import UsageError, check_place
from comparative_benchmark.request import cpu_list
from comparative_benchmark.results import expected_failures, journal
from comparative_benchmark.results.record import Phase, Status
from comparative_benchmark.results.results_file import ResultsFile
from comparative_benchmark.studies.micro import guide
from comparative_benchmark.studies.micro.shapes import Shape
from comparative_benchmark.studies.micro.sweeps import estimate
from openxla.benchmark.comparative_suite.operator_cases import cases
from openxla.benchmark.devices import HOST_CPU
from openxla.benchmark.workloads import workload_of

PROCESS_S = 2.0
COMMAND = ("/somewhere/bin/cbs", "micro", "run", "--op", "matmul", "--budget", "60")


class Clock:
    """Stands still until work takes time."""

    now = 0.0

    def __call__(self):
        return self.now


def _trials(shapes=10, competitors="jax_xla,xla_hlo"):
    found = [Shape(8, 8, 8 * (index + 1)) for index in range(shapes)]
    return [
        Trial(case=case, workload=workload_of(case), competitor=competitor, device=HOST_CPU)
        for case in cases(["matmul"], found, ["fp32"])
        if "JAX" in case.model.name
        for competitor in parse_competitors(competitors, "cpu")
    ]


@pytest.fixture
def run(tmp_path, monkeypatch, finished):
    """Runs trials whose processes take 2 s of a simulated clock, and their truth none or more."""
    clock, said, prepared = Clock(), [], []
    truth_s = 0.0
    good = finished().processes[0]

    def outcomes(_, trials, settings):
        count = min(max(3, int(settings.sampling.trial_budget_s / PROCESS_S)), 10)
        clock.now += len(trials) * count * PROCESS_S
        return {
            trial.key: runner.TrialOutcome(processes=[good] * count, wall_s=count * PROCESS_S)
            for trial in trials
        }

    class Preparation:
        def __init__(self, *_):
            self.tried, self.artifacts = set(), {}

        def run(self, trials, may_go_on):
            for trial in trials:
                if trial.workload.digest not in self.tried and may_go_on():
                    clock.now += truth_s
                    self.tried.add(trial.workload.digest)
            prepared.append(len(self.tried))

        def has_tried(self, trial):
            return trial.workload.digest in self.tried

    monkeypatch.setattr(runner.Run, "_outcomes", outcomes)
    monkeypatch.setattr(runner, "Preparation", Preparation)
    monkeypatch.setattr(runner, "_obstacle", lambda *_: None)
    monkeypatch.setattr(
        runner.RunBudget, "of", lambda settings: RunBudget(settings.budget_s, 3, clock=clock)
    )
    observer = SimpleNamespace(
        say=said.append, preparing=None, race_started=lambda *_: None,
        process_finished=lambda _: None,
        trial_finished=lambda *_: None,
    )  # fmt: skip

    def execute(trials, budget_s, *, resume=False, truth=0.0):
        nonlocal truth_s
        truth_s, clock.now = truth, 0.0
        said.clear()
        return runner.execute(
            trials,
            attrs.evolve(execute.settings, budget_s=budget_s, log_dir=tmp_path / "logs"),
            ResultsFile(tmp_path / "results.json"),
            observer,
            command=COMMAND,
            resume=resume,
        )

    execute.clock, execute.said, execute.prepared = clock, said, prepared
    execute.path = tmp_path / "results.json"
    execute.settings = RunSettings(device=HOST_CPU)
    return execute


def test_a_run_ends_within_its_budget_and_continues(run):
    trials = _trials()  # 20 trials, of 6 s each at least
    found = run(trials, 60.0)
    assert run.clock.now <= 60.0
    assert 8 <= len(found) <= 10
    assert [result.key for result in found] == [trial.key for trial in trials[: len(found)]]
    assert run.said[-1] == (
        f"--budget ran out: {20 - len(found)} of 20 trials did not run; to run them: "
        f"cbs micro run --op matmul --budget 60 -o {run.path} --resume"
    )
    again = run(trials, 60.0, resume=True)
    assert 16 <= len(again) <= 20
    assert len(run(trials, 60.0, resume=True)) == 20
    assert not [line for line in run.said if "did not run" in line]


def test_truth_takes_half_of_the_budget_at_most(run):
    found = run(_trials(), 60.0, truth=10.0)
    assert run.prepared == [3]
    assert len(found) in (4, 6)
    assert run.clock.now <= 60.0


def test_without_a_budget_all_is_measured_and_the_pace_is_reported(run):
    assert len(run(_trials(), None)) == 20
    # 30 s are a trial's budget: 15 processes, but it gets 10.
    assert [line for line in run.said if "trials done" in line] == [
        "2 of 20 trials done, about 6 min left",
        "10 of 20 trials done, about 3 min left",
    ]


def test_nothing_is_begun_where_nothing_is_left(run):
    assert run(_trials(), 0.0) == []
    assert "20 of 20 trials did not run" in run.said[-1]


@pytest.mark.parametrize(("count", "is_kept"), [(2, True), (3, False)])
def test_processes_of_a_race_that_the_budget_ended_are_kept(
    run, count, is_kept, tmp_path, monkeypatch, finished
):
    good = finished().processes[0]

    def outcomes(_, trials, __):
        return {
            trial.key: runner.TrialOutcome(processes=[good] * count, wall_s=1.0) for trial in trials
        }

    monkeypatch.setattr(runner.Run, "_outcomes", outcomes)
    [first, *_] = _trials()
    assert len(run([first], 60.0)) == 1
    assert bool(list(tmp_path.rglob(f"*{journal._UNDECIDED}"))) == is_kept


@pytest.mark.parametrize(
    ("statuses", "left_out", "code"),
    [(["ok"], 1, 4), ([], 1, 4), (["ok"], 0, 0), (["failed"], 1, 1), (["wrong_output"], 1, 2)],
)
def test_the_exit_code_says_that_not_all_was_measured(statuses, left_out, code, monkeypatch):
    results = [
        SimpleNamespace(status=Status(s), key=("case", "a", "device"), run_id="r") for s in statuses
    ]
    settings = SimpleNamespace(threads=1, sampling=SamplingRule(), budget_s=1.0)
    measured = Measured(results=results, settings=settings, baseline=None, left_out=left_out)
    monkeypatch.setattr(run_command, "measure", lambda *_, **__: measured)
    monkeypatch.setattr(run_command, "ceilings_for", lambda *_, **options: options["measure"])
    monkeypatch.setattr(run_command, "Case", lambda result, run: result)
    monkeypatch.setattr(
        run_command,
        "Console",
        lambda **_: SimpleNamespace(
            say=lambda *_, **__: None,
            following=nullcontext,
            results=lambda *_, **__: None,
            lines=lambda *_: None,
        ),
    )
    judgement = SimpleNamespace(expected={}, complaints=list, stale=[])
    monkeypatch.setattr(expected_failures, "judge", lambda *_, **__: judgement)
    options = SimpleNamespace(
        verbose=False, suite=[], output="r.json", profile=False, expected_failures=None
    )
    assert run_command.run(options) == code


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("/x/bin/cbs", "run", "-o", "my results.json"), "cbs run -o 'my results.json' --resume"),
        (("/x/comparative_benchmark/__main__.py", "run"),
         "python -m comparative_benchmark run --resume"),
        (("cbs", "run", "--outputs", "bound"), "cbs run --outputs bound -o out.json --resume"),
        (("cbs", "run", "--output=r.json"), "cbs run --output=r.json --resume"),
        (("benchmarks/dashboard/ci.py", "--resume"), "python benchmarks/dashboard/ci.py --resume"),
        (("comparative_benchmark.engine", "-name", "x"), "resume=True"),
    ],
)  # fmt: skip
def test_the_command_that_goes_on_can_be_typed(command, told):
    output = Path("out.json") if "-o out.json" in told or "--output=" in told else None
    assert resume_command(command, output) == told


def test_how_to_go_on_is_told_without_what_an_interrupt_may_have_left_half_imported():
    code = "import sys; import comparative_benchmark.engine; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "attr"}.intersection(done.stdout.split())


def test_the_estimate_says_how_many_trials_a_budget_is_enough_for():
    trials = _trials(60)
    free = estimate(trials, RunSettings(device=HOST_CPU, threads=2, share_workers=True))
    # What 120 trials of two competitors took on two cores that were otherwise idle.
    assert 15 * 60 < free.seconds < 25 * 60
    assert "budget" not in str(free)
    bounded = RunSettings(device=HOST_CPU, threads=2, share_workers=True, budget_s=300.0)
    found = estimate(trials, bounded)
    assert 30 < found.fitting < 60
    assert f"; --budget 300 is enough for about {found.fitting} of them" in str(found)


def test_a_row_of_the_guide_that_was_left_out_has_no_number(monkeypatch):
    row = SimpleNamespace(refused=None, model=SimpleNamespace(compiler="inductor"))
    assert guide._ending(row, [None] * 4, None)["status"] == "left_out"


def test_the_models_of_a_file_share_its_budget(monkeypatch, tmp_path):
    clock, budgets = Clock(), []

    def race(options, chosen):
        budgets.append(options.budget)
        clock.now += 40.0
        return (0 if len(budgets) == 1 else 4), []

    monkeypatch.setattr(micro.time, "monotonic", clock)
    monkeypatch.setattr(micro, "_race", race)
    entry = "{device: cpu, matrix_shapes: {name: custom, shapes: [[8, 8, 8]]}}"
    path = tmp_path / "c.yml"
    path.write_text(f"model_params: [{', '.join([entry] * 3)}]")
    options = SimpleNamespace(
        config=path, max_power=None, output=tmp_path / "r.json", device=None, profile=False,
        plot=None, budget=60.0, backward=False, from_model=None, own_workers=False, env=None,
        share_workers=False, backend=None, shapes=None, dtype=None, min_power=None, dry_run=False,
        json=False,
    )  # fmt: skip
    assert micro.sweep(options) == 4
    assert budgets == [60.0, 20.0, micro._SPENT_S]
    table = (tmp_path / "r.csv").read_text()
    assert table.count("left_out") == 3
    # A dry run measures nothing, so it replaces no table.
    (tmp_path / "r.csv").write_text("measured")
    options.dry_run, options.budget, options.backend = True, None, None
    assert micro.sweep(options) == 0
    assert (tmp_path / "r.csv").read_text() == "measured"
    # Nor may a table replace the results.
    options.output, options.backend = tmp_path / "r.csv", None
    with pytest.raises(UsageError, match="is the name of the CSV table"):
        micro.sweep(options)


def test_a_sweep_without_results_draws_no_plot(monkeypatch, tmp_path):
    measured = Measured(results=[], settings=None, baseline=None, left_out=1)
    lines = []

    def run(options, selection, after):
        lines.append(after(measured))
        return 4

    monkeypatch.setattr(run_command, "run", run)
    options = SimpleNamespace(plot=tmp_path / "p.png", own_workers=False)
    assert micro._race(options, []) == (4, [])
    assert lines == [[]]


def test_a_short_run_has_no_outlook():
    budget = RunBudget(None)
    assert budget.outlook(runner._LONG_RUN - 1) is None


def test_what_a_shared_worker_imports_is_not_part_of_the_pace(finished):
    outcome = finished(phases={"import": Phase(ms=9000.0, host_memory_peak_bytes=None)})
    outcome.wall_s = 10.0
    for shares, started in ((True, True), (False, False)):
        budget = RunBudget(20.0, 3, shares_workers=shares, clock=Clock())
        budget.measured([outcome])
        assert budget.may_start(1) is started


def test_a_later_failure_counts_more_than_an_earlier_success():
    [trial, *_] = _trials(1)
    settings = RunSettings(device=HOST_CPU)

    def result(status, *, compile_only=False):
        return SimpleNamespace(
            key=trial.key,
            status=status,
            definition=SimpleNamespace(
                outputs=settings.outputs, workload=SimpleNamespace(digest=trial.workload.digest)
            ),
            measured=SimpleNamespace(truth_source=None, compile_only=compile_only),
        )

    for statuses, is_done in ((["OK"], 1), (["OK", "WRONG_OUTPUT"], 0), (["FAILED", "OK"], 1)):
        old = [result(Status[status]) for status in statuses]
        assert len(resuming._done([trial], settings, old, ())) == is_done
    # A compile time must not replace a latency, nor the reverse.
    old = [result(Status.OK, compile_only=True)]
    assert not resuming._done([trial], settings, old, ())
    compiling = attrs.evolve(settings, sampling=CompileOnly())
    assert resuming._done([trial], compiling, old, ())


def test_two_inputs_of_one_model_have_logs_of_their_own():
    [trial, *_] = _trials(1)
    other = attrs.evolve(trial.case, input_data=attrs.evolve(trial.case.input_data, name="LONG"))
    name = runner._log_files(Path("logs"))
    assert name(trial, 0) != name(attrs.evolve(trial, case=other), 0)


def test_a_run_in_this_process_shares_no_workers(run, monkeypatch):
    monkeypatch.setattr(runner, "SharedWorkers", None)
    monkeypatch.setattr(
        run, "settings", RunSettings(device=HOST_CPU, share_workers=True, in_process=True)
    )
    assert len(run(_trials(1), 60.0)) == 2


@pytest.mark.parametrize("text", ["0-9999999999", "3-1", "x", "0-", "\N{SUPERSCRIPT TWO}"])
def test_a_list_of_cpus_that_no_machine_has_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a list of CPUs"):
        cpu_list(text)


def test_an_output_with_a_name_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(UsageError, match="File name too long"):
        check_place(tmp_path / ("x" * 300), "output")
