"""`cbs fleet`: output and exit code of each subcommand, with a scheduler in memory."""

import io
import json
from pathlib import Path

import fleet_doubles
import pytest
from fleet_doubles import DESCRIPTION, Scheduler, units

from comparative_benchmark.cli.command import main, parse
from comparative_benchmark.fleet import campaign, node
from comparative_benchmark.fleet.engines import EngineError, QueueEntry, QueueState, RefusedError
from comparative_benchmark.fleet.features import Node
from comparative_benchmark.results.results_file import read_document

ONE_CLASS = DESCRIPTION.partition('[[class]]\nname = "big"')[0]
SPOOL = Path("fleet-spool/zoo")

# The first line; a second one has the reason if the last poll was before the submission.
PENDING = "pending      2"


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    """The engine of a fleet of two workloads in the working directory."""
    engine = Scheduler()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(campaign, "open_engine", lambda *_: engine)
    monkeypatch.setattr(campaign, "units_of", lambda *_: units())
    Path("FLEET.toml").write_text(ONE_CLASS)
    return engine


@pytest.fixture
def fleet(scheduler, capsys):
    """Runs a subcommand; returns its exit code, and the lines of its output and its errors."""

    def fleet(action, *words):
        code = main(["fleet", action, "FLEET.toml", *words])
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return fleet


@pytest.fixture
def execute(monkeypatch):
    """Executes all batches of the spool on this machine, with a double of `cbs run`."""

    def execute(*, fails=()):
        with monkeypatch.context() as patches:
            fleet_doubles.fake_run(patches, node, fails=fails)
            return [
                main(["fleet", "node", str(path)]) for path in sorted(SPOOL.glob("batches/*.json"))
            ]

    return execute


def set_states(scheduler, state, **others):
    for name in scheduler.states:
        scheduler.states[name] = QueueEntry(state=state, **others)
    (SPOOL / "queue.json").unlink(missing_ok=True)


def test_plan_prints_jobs_of_each_class_and_writes_nothing(fleet):
    Path("FLEET.toml").write_text(DESCRIPTION)
    assert fleet("plan") == (
        0,
        [
            "small: 2 jobs (2 trials) in 1 batch, about 0.0 h of machine time",
            "big: 4 jobs (4 trials) in 2 batches, about 0.0 h of machine time",
        ],
        [],
    )
    assert [path.name for path in Path().iterdir()] == ["FLEET.toml"]


def test_plan_as_json_has_jobs_and_batches(fleet):
    code, [line], _ = fleet("plan", "--json")
    plan = json.loads(line)
    assert code == 0
    assert plan["fleet"] == "zoo"
    assert [job["label"] for job in plan["jobs"]] == ["w1", "w2"]
    [batch] = plan["batches"]
    assert sorted(batch) == sorted(job["key"] for job in plan["jobs"])


def test_submit_twice_is_the_same_as_once(fleet, scheduler):
    assert fleet("submit") == (0, ["submitted: 2 jobs in 1 batch"], [])
    assert fleet("submit") == (0, ["submitted: 0 jobs in 0 batches"], [])
    assert len(scheduler.submitted) == 1


@pytest.mark.parametrize("spelling", ["link/FLEET.toml", "folder/../FLEET.toml"])
def test_another_spelling_of_the_path_finds_the_jobs(fleet, scheduler, tmp_path, capsys, spelling):
    fleet("submit")
    (SPOOL / "queue.json").unlink()
    Path("folder").mkdir()
    Path("link").symlink_to(tmp_path)
    assert main(["fleet", "status", spelling]) == 4
    assert capsys.readouterr().out.splitlines() == [PENDING]


@pytest.mark.parametrize(
    ("refused", "changed", "submitted", "pending"),
    [(True, True, 1, 1), (True, False, 3, 3), (False, True, 1, 3)],
)
def test_jobs_of_a_former_description_stay_if_they_started(
    fleet, scheduler, monkeypatch, refused, changed, submitted, pending
):
    scheduler.refuses = RefusedError("no") if refused else None
    fleet("submit")
    scheduler.refuses = None
    if changed:
        Path("FLEET.toml").write_text(f"{ONE_CLASS}# changed\n")
    monkeypatch.setattr(campaign, "units_of", lambda *_: units("w3"))
    [line] = fleet("submit")[1]
    assert line.startswith(f"submitted: {submitted} job")
    assert fleet("status")[1][0] == f"pending      {pending}"


def test_another_campaign_measures_again(fleet, scheduler):
    fleet("submit")
    assert fleet("submit", "--campaign", "next")[1] == ["submitted: 2 jobs in 1 batch"]
    assert fleet("status", "--campaign", "next")[1][0] == PENDING
    assert len(scheduler.submitted) == 2


def test_a_class_that_no_node_offers_is_unsupported_at_once(fleet, scheduler):
    Path("FLEET.toml").write_text(ONE_CLASS.replace("+cpu", "+gpu"))
    code, lines, _ = fleet("submit")
    assert code == 3
    assert lines == [
        "submitted: 0 jobs in 0 batches",
        "unsupported: class small: no node offers +gpu",
    ]
    assert scheduler.submitted == []
    code, lines, _ = fleet("status")
    assert code == 3
    assert lines[0] == "unsupported  2"
    assert lines[1] == "unsupported: w1 (small): no node offers +gpu"


def test_nodes_that_are_down_are_named_as_the_reason(fleet, scheduler):
    scheduler.machines = [Node(name="n1", features=frozenset({"cpu"}), up=False)]
    code, lines, _ = fleet("submit")
    assert code == 3
    assert lines[1] == "unsupported: class small: all nodes with +cpu are down or excluded"


def test_a_refused_class_has_the_reason_of_the_scheduler(fleet, scheduler):
    scheduler.refuses = RefusedError("sbatch: Invalid account")
    assert fleet("submit") == (
        1,
        ["submitted: 0 jobs in 0 batches", "refused: class small: sbatch: Invalid account"],
        [],
    )
    assert fleet("status")[1] == ["waiting      2"]
    scheduler.refuses = None
    assert fleet("submit")[1] == ["submitted: 2 jobs in 1 batch"]


@pytest.mark.parametrize(
    ("continued", "advice"),
    [
        ([], "a queued job will submit them later"),
        (None, "run the command again when the queue has room"),
    ],
)
def test_a_full_queue(fleet, scheduler, continued, advice):
    Path("FLEET.toml").write_text(ONE_CLASS.replace('name = "small"', 'name = "small"\nrepeats=2'))
    scheduler.most, scheduler.continued = 1, continued
    assert fleet("submit") == (
        0,
        ["submitted: 2 jobs in 1 batch", f"the queue is full: 2 jobs not submitted; {advice}"],
        [],
    )
    if continued is not None:
        [command] = continued
        assert parse(command[4:]).action == "submit"


def test_a_full_queue_leaves_jobs_of_a_resume_to_another_resume(fleet, scheduler):
    fleet("submit")
    set_states(scheduler, QueueState.TIMEOUT, node="n1")
    scheduler.most, scheduler.continued = 0, []
    assert fleet("resume", "--longer")[1][1].endswith("a queued job will submit them later")
    [command] = scheduler.continued
    options = parse(command[4:])
    assert (options.action, options.longer) == ("resume", True)


def test_a_batch_whose_submitter_got_no_answer_can_be_cancelled(fleet, scheduler, monkeypatch):
    submit = scheduler.submit

    def without_answer(submission):
        submit(submission)
        raise EngineError("sbatch: timed out")

    monkeypatch.setattr(scheduler, "submit", without_answer)
    assert fleet("submit")[0] == 1
    assert fleet("cancel")[1] == ["cancelled: 2 jobs"]


@pytest.mark.parametrize("action", ["submit", "resume", "cancel", "collect", "status"])
def test_a_scheduler_that_does_not_answer_loses_nothing(fleet, scheduler, action):
    fleet("submit")
    scheduler.error = EngineError("squeue: Unable to contact slurm controller")
    (SPOOL / "queue.json").unlink()
    code, lines, errors = fleet(action)
    assert errors[0] == "cbs: squeue: Unable to contact slurm controller"
    if action in ("status", "collect"):
        assert code == 4
        assert "the scheduler does not respond" in lines[-1] or lines[0] == PENDING
    else:
        assert code == 1
        assert lines == []
    scheduler.error = None
    assert fleet("status")[1][0] == PENDING


def test_status_of_jobs_on_the_way_is_unfinished(fleet, scheduler):
    fleet("submit")
    code, lines, errors = fleet("status")
    assert (code, lines[0], errors) == (4, PENDING, [])
    set_states(scheduler, QueueState.RUNNING, node="n1")
    assert fleet("status") == (4, ["running      2"], [])


def test_status_of_failed_jobs_has_node_and_reason(fleet, execute):
    fleet("submit")
    assert execute(fails=["w2"]) == [1]
    code, lines, _ = fleet("status")
    assert code == 1
    assert lines[:2] == ["done         1", "failed       1"]
    assert lines[2].startswith(f"failed on {node.platform.node()}: w2 (small): cbs run exited with")


def test_status_as_json_has_each_job(fleet):
    fleet("submit")
    code, [line], _ = fleet("status", "--json")
    assert code == 4
    found = json.loads(line)
    assert [item["state"] for item in found.values()] == ["pending", "pending"]


def test_status_of_many_jobs_is_short(fleet, monkeypatch, scheduler):
    monkeypatch.setattr(campaign, "units_of", lambda *_: units(*(f"w{n}" for n in range(30))))
    fleet("submit")
    set_states(scheduler, QueueState.TIMEOUT)
    code, lines, _ = fleet("status")
    assert code == 1
    assert lines[0] == "timeout      30"
    assert len(lines) == 22
    assert lines[-1] == "and 10 more; --json prints all"


@pytest.mark.parametrize("action", ["status", "collect", "resume", "cancel"])
def test_a_fleet_that_was_not_submitted(fleet, tmp_path, action):
    place = tmp_path / "fleet-spool" / "zoo"
    error = f"cbs: {place} has no plan; submit one with cbs fleet submit FLEET.toml"
    assert fleet(action) == (1, [], [error])


def test_collect_adds_each_result_once(fleet, execute):
    fleet("submit")
    assert execute() == [0]
    assert fleet("collect") == (0, ["2 new results: results/zoo.json"], [])
    content = Path("results/zoo.json").read_bytes()
    assert fleet("collect") == (0, ["0 new results, 2 already known: results/zoo.json"], [])
    assert Path("results/zoo.json").read_bytes() == content
    nodes = {run.allocation.node for run in read_document(Path("results/zoo.json")).runs}
    assert nodes == {node.platform.node()}


def test_collect_names_missing_damaged_and_foreign_files(fleet, execute):
    fleet("submit")
    execute(fails=["w2"])
    [result] = SPOOL.glob("results/*.json")
    result.write_text(result.read_text()[:-100])
    (SPOOL / "results" / "notes.txt").write_text("mine")
    code, lines, _ = fleet("collect", "-o", "r.json")
    assert code == 1
    assert lines[0] == "0 new results: r.json"
    assert lines[1].startswith(f"damaged: results/{result.name}: ")
    assert lines[2] == "not from any job: results/notes.txt"
    assert lines[3].startswith(f"missing: damaged on {node.platform.node()}: w1 (small)")
    assert lines[4].startswith(f"missing: failed on {node.platform.node()}: w2 (small): cbs run")


def test_collect_lists_results_of_shared_nodes(fleet, execute, monkeypatch):
    monkeypatch.setattr(node, "exclusive_use", lambda: (False, "8 of 64 CPUs"))
    fleet("submit")
    execute()
    assert fleet("collect")[1] == [
        "2 new results: results/zoo.json",
        "2 results from shared nodes: kept, but not ranked",
    ]


def test_resume_starts_lost_jobs_again(fleet, scheduler, execute):
    fleet("submit")
    set_states(scheduler, QueueState.LOST, node="n1", reason="NodeFail")
    code, lines, _ = fleet("status")
    assert code == 1
    assert lines[0] == "lost         2"
    assert lines[1] == "lost on n1: w1 (small): NodeFail"
    assert fleet("resume")[:2] == (0, ["submitted: 2 jobs in 1 batch"])
    code, lines, _ = fleet("status")
    assert (code, lines[0]) == (4, PENDING)
    execute()
    lines = fleet("collect")[1]
    assert lines[0] == "2 new results: results/zoo.json"


def test_resume_without_anything_to_do(fleet, execute):
    fleet("submit")
    assert fleet("resume") == (0, ["submitted: 0 jobs in 0 batches"], [])
    execute()
    assert fleet("resume") == (0, ["submitted: 0 jobs in 0 batches"], [])


def test_jobs_that_exceeded_the_time_limit_need_longer(fleet, scheduler):
    fleet("submit")
    set_states(scheduler, QueueState.TIMEOUT, node="n1")
    code, lines, errors = fleet("resume")
    assert (code, lines) == (0, ["submitted: 0 jobs in 0 batches"])
    assert errors[-1].endswith("time limit require --longer")
    assert fleet("resume", "--longer")[:2] == (0, ["submitted: 2 jobs in 1 batch"])
    assert [item.time_limit_s for item in scheduler.submitted] == [3600, 7200]
    set_states(scheduler, QueueState.TIMEOUT, node="n1")
    code, lines, errors = fleet("resume", "--longer")
    assert (code, lines) == (0, ["submitted: 0 jobs in 0 batches"])
    assert errors[-1].endswith("jobs that reached their time limit get more time only once")


def test_cancel_prints_the_number_of_jobs(fleet, scheduler):
    fleet("submit")
    assert fleet("cancel") == (0, ["cancelled: 2 jobs"], [])
    assert fleet("cancel") == (0, ["cancelled: 0 jobs"], [])
    code, lines, _ = fleet("status")
    assert code == 1
    assert lines[1] == "cancelled: w1 (small): by cbs fleet cancel"


def test_cancel_ends_the_job_that_submits_the_rest(fleet, scheduler):
    fleet("submit")
    [batch] = scheduler.states
    fleet("cancel")
    assert scheduler.states[f"{batch.rpartition('-')[0]}-submit"].state is QueueState.CANCELLED


def test_a_changed_description_is_reported(fleet):
    fleet("submit")
    Path("FLEET.toml").write_text(ONE_CLASS + "# changed\n")
    assert fleet("status")[2] == ["cbs: FLEET.toml has changed since its jobs were submitted"]


@pytest.mark.parametrize("name", ["", "a/b", "-x", "..", "x" * 62])
def test_names_of_campaigns_are_checked(fleet, name):
    code, _, errors = fleet("plan", f"--campaign={name}")
    if name:
        assert code == 1
        assert errors[0].startswith(f"cbs: --campaign {name!r}: use 1-61 letters, digits")
    else:
        assert code == 0


def test_a_mistake_in_the_description_is_one_line(fleet, scheduler):
    Path("FLEET.toml").write_text("naem = 'x'\n")
    assert fleet("submit") == (1, [], ["cbs: FLEET.toml:1: unknown key 'naem'; did you mean name?"])


def test_an_unknown_engine_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("FLEET.toml").write_text('engine = "slrum"\n' + ONE_CLASS)
    assert main(["fleet", "plan", "FLEET.toml"]) == 1
    assert capsys.readouterr().err == "cbs: unknown engine 'slrum'; did you mean slurm?\n"


def test_the_local_engine_runs_batches_in_the_background(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(campaign, "units_of", lambda *_: units("w1"))
    Path("FLEET.toml").write_text(ONE_CLASS + 'environment = "no-such-python"\n')
    assert main(["fleet", "submit", "FLEET.toml"]) == 1
    assert "refused: class small: environment no-such-python has no" in capsys.readouterr().out


@pytest.mark.parametrize(
    "request_text", ["", "[1]", "{}", '{"folder": 3, "verb": "poll"}', '{"folder": "x", "verb": 1}']
)
def test_a_malformed_request_to_the_agent_is_one_line(monkeypatch, capsys, request_text):
    monkeypatch.setattr("sys.stdin", io.StringIO(request_text))
    assert main(["fleet", "agent"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("cbs: malformed request: ")
    assert error.count("\n") == 1


def test_a_missing_batch_is_one_line(tmp_path, capsys):
    assert main(["fleet", "node", str(tmp_path / "batches" / "x.json")]) == 1
    assert "x.json cannot be read: " in capsys.readouterr().err


@pytest.mark.parametrize("words", [["fleet", "--help"], ["help", "fleet"], ["fleet", "nope"]])
def test_commands_of_programs_are_not_listed(capsys, words):
    with pytest.raises(SystemExit):
        main(words)
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert "export" in text
    assert "SUPPRESS" not in text
    assert not {"node", "runner", "agent"} & set(text.replace(",", " ").split())


def test_completion_lists_no_commands_of_programs(capsys):
    assert main(["completion", "bash"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  [fleet]")]
    words = line.partition("=")[2].strip("'").split()
    assert words[2:] == [
        "plan",
        "submit",
        "status",
        "collect",
        "resume",
        "cancel",
        "export",
        "judge",
    ]
