"""Findings on seeded nights: nothing in noise, and everything that is planted."""

import contextlib
import itertools
import json
import math
import statistics

import msgspec
import pytest
from formats_support import write_results
from test_history_rows import NOISE, night, noisy_nights, row

from comparative_benchmark.cli import command as cli
from comparative_benchmark.reporting.history import output
from comparative_benchmark.reporting.history.database import Database, Writer
from comparative_benchmark.reporting.history.findings import Kind
from comparative_benchmark.reporting.history.queries import Filter
from comparative_benchmark.reporting.history.regressions import Settings, find_regressions
from comparative_benchmark.reporting.writers import as_yaml

pytestmark = pytest.mark.slow

BAD = 29
GONE = {"latency_ms": None, "compile_ms": None, "warm_compile_ms": None, "error": None}


@pytest.fixture
def history(tmp_path):
    """Makes a history of rows; returns its location."""

    def make(rows, name="history.sqlite"):
        with contextlib.closing(Database(str(tmp_path / name))) as database:
            Writer(database).add(rows)
        return tmp_path / name

    return make


@pytest.fixture
def looked(history):
    numbers = itertools.count()

    def look_at(rows, which=None, settings=None):
        path = history(rows, f"{next(numbers)}.sqlite")
        with contextlib.closing(Database(str(path))) as database:
            return find_regressions(database, which or Filter(), settings)

    return look_at


@pytest.fixture
def cbs(capsys, monkeypatch, tmp_path):
    """Runs `cbs history ...` in this process; returns exit code, stdout and stderr."""
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ENV", raising=False)

    def run(*arguments):
        try:
            code = cli.main(["history", *map(str, arguments)])
        except SystemExit as leave:
            code = leave.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run


def planted(case=2, first=BAD, **changes):
    return lambda at, number: changes if at == case and number >= first else {}


def test_nights_of_plain_noise_raise_nothing(tmp_path):
    # 10 histories of 20 cases, 5 metrics each: one chance in a hundred for each history.
    alarms = []
    for seed in range(10):
        with contextlib.closing(Database(str(tmp_path / f"{seed}.sqlite"))) as database:
            Writer(database).add(noisy_nights(seed, cases=20, noise=NOISE * (1 + seed % 4)))
            report = find_regressions(database, Filter())
        assert report.judged == 100
        alarms += report.findings
    assert alarms == []


def test_a_slow_down_of_8_percent_is_found_on_its_first_night(looked):
    late = []
    for seed in range(10):
        rows = noisy_nights(seed, plant=planted(latency_ms=1.08))
        found = looked(rows).counted
        if not found:
            late.append(seed)
            continue
        (finding,) = found
        assert finding.kind is Kind.STEP
        assert finding.metric == "latency_ms"
        assert finding.name == "case-2 jax_xla:xla (jax, host-cpu)"
        assert finding.first_bad.run_id == f"run-{BAD}"
        assert finding.first_bad.time == night(BAD)["time"]
        assert finding.last_good.run_id == f"run-{BAD - 1}"
        assert finding.changed == {
            "jax": (f"0.10.{BAD - 1}", f"0.10.{BAD}"),
            "revision": (f"rev{BAD - 1}", f"rev{BAD}"),
        }
        assert finding.nights == 1
        assert finding.low < finding.ratio < finding.high
        # A single night also has its own noise, which limits the estimate.
        values = [item.latency_ms for item in rows if item.workload == "case-2"]
        assert finding.ratio == pytest.approx(values[BAD] / statistics.median(values[:BAD]))
    # One night can be so fast by chance that half of the step is hidden, but not two nights.
    assert len(late) <= 1
    for seed in late:
        rows = noisy_nights(seed, plant=planted(first=BAD - 1, latency_ms=1.08))
        (finding,) = looked(rows).counted
        assert finding.first_bad.run_id == f"run-{BAD - 1}"


@pytest.mark.parametrize(
    ("metric", "factor"),
    [
        ("latency_ms", 1.08),
        ("compile_ms", 1.3),
        ("warm_compile_ms", 1.3),
        ("host_memory_mb", 1.2),
        ("error", 100.0),
    ],
)
def test_every_metric_has_steps(looked, metric, factor):
    (finding,) = looked(noisy_nights(7, plant=planted(first=15, **{metric: factor}))).counted
    assert (finding.metric, finding.nights) == (metric, 15)
    assert finding.first_bad.run_id == "run-15"
    assert finding.ratio == pytest.approx(factor, rel=0.03)


def test_an_error_that_appears_is_a_step_though_its_logarithm_has_no_zero(looked):
    def plant(case, number):
        return {"error": 1e-3 if number == BAD else 0.0} if case == 1 else {}

    (finding,) = looked(noisy_nights(8, plant=plant)).counted
    assert (finding.metric, finding.dimensions["workload"]) == ("error", "case-1")


def test_a_step_that_was_undone_is_none_and_one_before_since_is_left_out(looked):
    def plant(case, number):
        return {"latency_ms": 1.2} if case == 0 and 10 <= number < 20 else {}

    assert looked(noisy_nights(9, plant=plant)).findings == []
    rows = noisy_nights(9, plant=planted(first=15, latency_ms=1.2))
    assert len(looked(rows).counted) == 1
    for number, expected in ((15, 1), (16, 0)):
        which = Filter(since=night(number)["time"])
        assert len(looked(rows, which).counted) == expected


def test_until_looks_from_an_earlier_night_and_the_window_from_the_latest(looked):
    rows = noisy_nights(9, plant=planted(first=15, latency_ms=1.2))
    assert looked(rows, Filter(until=night(15)["time"])).findings == []
    assert len(looked(rows, Filter(until=night(16)["time"])).counted) == 1
    assert len(looked(rows, settings=Settings(window=20)).counted) == 1
    assert looked(rows, settings=Settings(window=10)).findings == []


def test_filters_choose_the_series_that_are_looked_at(looked):
    rows = noisy_nights(9, plant=planted(latency_ms=1.2))
    assert looked(rows, Filter(texts={"workload": ["case-1"]})).findings == []
    report = looked(rows, Filter(texts={"workload": ["case-2"]}))
    assert (report.series, len(report.counted)) == (1, 1)


def test_a_faster_night_is_no_regression(looked):
    assert looked(noisy_nights(9, plant=planted(first=20, latency_ms=0.8))).findings == []


@pytest.mark.parametrize("status", ["wrong_output", "failed", "timeout", "crashed"])
def test_a_status_that_turned_is_found_with_its_first_night(looked, status):
    changes = {**GONE, "status": status, "reason": "in compile:\n no memory"}
    (finding,) = looked(noisy_nights(3, plant=planted(first=27, **changes))).counted
    assert finding.kind is Kind.STATUS
    assert finding.what == f"ok -> {status}: in compile: no memory"
    assert (finding.last_good.run_id, finding.first_bad.run_id) == ("run-26", "run-27")
    assert finding.nights == 3
    assert finding.changed["jax"] == ("0.10.26", "0.10.27")


@pytest.mark.parametrize("status", ["unsteady", "unsupported"])
def test_a_status_that_says_nothing_is_missing_data(looked, status):
    (finding,) = looked(noisy_nights(3, plant=planted(**GONE, status=status))).counted
    assert finding.kind is Kind.MISSING


def test_what_has_never_been_ok_or_is_ok_again_is_no_finding(looked):
    never = planted(first=0, **GONE, status="failed")
    assert looked(noisy_nights(3, plant=never)).findings == []

    def once(case, number):
        return {**GONE, "status": "failed"} if number == 20 else {}

    assert looked(noisy_nights(3, plant=once)).findings == []


def test_a_case_that_is_gone_is_found_with_the_run_that_lacks_it(looked):
    (finding,) = looked(
        noisy_nights(4, plant=lambda case, number: None if (case, number) == (2, BAD) else {})
    ).counted
    assert finding.kind is Kind.MISSING
    assert finding.dimensions["workload"] == "case-2"
    assert (finding.last_good.run_id, finding.first_bad.run_id) == ("run-28", "run-29")
    assert finding.first_bad.versions["jax"] == "0.10.29"
    assert "missing from 1 run" in finding.what


def test_a_run_of_a_few_cases_by_hand_misses_nothing(looked):
    rows = noisy_nights(4, cases=6)
    by_hand = msgspec.structs.replace(rows[0], time=night(40)["time"], run_id="by-hand")
    assert looked([*rows, by_hand]).findings == []


def test_a_backend_that_is_gone_from_the_run_is_found(looked):
    rows = noisy_nights(4, cases=3)
    other = [msgspec.structs.replace(item, backend="iree", compiler="llvm-cpu") for item in rows]
    rows += [item for item in other if item.run_id != f"run-{BAD}"]
    found = looked(rows).counted
    assert {finding.dimensions["backend"] for finding in found} == {"iree"}
    assert len(found) == 3
    # The other backend's packages are not evidence for this one.
    assert all(set(finding.changed) == {"revision"} for finding in found)


def shard(rows, name):
    return [
        msgspec.structs.replace(item, backend=name, run_id=f"{name}-{item.run_id}", compiler="c")
        for item in rows
    ]


def test_a_shard_that_ran_later_in_the_night_is_not_missing_and_one_that_stopped_is(looked):
    rows = noisy_nights(4, cases=3)
    late = shard(rows, "iree")
    assert looked(rows + [row for row in late if row.run_id != f"iree-run-{BAD}"]).findings == []
    stopped = [item for item in late if item.time < night(BAD - 1)["time"]]
    found = looked(rows + stopped).counted
    assert {finding.dimensions["backend"] for finding in found} == {"iree"}
    assert {finding.first_bad.run_id for finding in found} == {f"run-{BAD - 1}"}


def test_a_case_that_a_whole_window_did_without_has_been_retired(looked):
    rows = noisy_nights(4, plant=lambda case, number: None if case == 2 and number > 5 else {})
    assert len(looked(rows).counted) == 1
    assert looked(rows, settings=Settings(window=20)).findings == []


@pytest.mark.parametrize("last", [{"status": "failed", **GONE}, {"latency_ms": 1.5}])
def test_a_retired_case_raises_no_alarm_for_its_last_nights(looked, last):
    def plant(case, number):
        return None if case == 2 and number > 9 else last if case == 2 and number > 5 else {}

    rows = noisy_nights(4, plant=plant)
    assert looked(rows, settings=Settings(window=40)).counted
    report = looked(rows, settings=Settings(window=20))
    assert (report.findings, report.series) == ([], 4)


def test_the_regression_file_has_all_findings_of_one_case(looked):
    rows = noisy_nights(0, cases=1, plant=planted(case=0, latency_ms=1.5))
    more = [msgspec.structs.replace(item, threads=8, identity=f"8 {item.time}") for item in rows]
    counted = looked(rows + more).counted
    assert len(counted) == 2
    assert len(output.findings_document(counted, name="nightly")["details"]) == 2


def test_rows_without_runs_are_missing_only_after_two_nights(looked):
    rows = [msgspec.structs.replace(item, run_id="") for item in noisy_nights(4, cases=2)]

    def without(first):
        gone = [r for r in rows if r.workload == "case-1" and r.time >= night(first)["time"]]
        return [item for item in rows if item not in gone]

    assert looked(without(BAD)).findings == []
    (finding,) = looked(without(BAD - 1)).counted
    assert finding.dimensions["workload"] == "case-1"


SAME = {"versions": {"jax": "0.10.2"}, "program": "q" * 64, "revision": "r"}


def test_a_program_that_did_not_change_is_not_blamed(looked):
    def plant(case, number):
        slow = {"latency_ms": 1.08} if case == 2 and number == BAD else {}
        return {**SAME, **slow}

    rows = noisy_nights(1, cases=8, plant=plant)
    report = looked(rows)
    assert report.counted == []
    (finding,) = report.findings
    assert "the compiled program and package versions are identical" in finding.withheld
    (floor,) = report.floor.values()
    assert 0.01 < floor < 0.05
    assert len(looked(rows, settings=Settings(count_unchanged=True)).counted) == 1


@pytest.mark.parametrize(
    "change",
    [{"versions": {"jax": "0.10.3"}}, {"revision": "s"}, {"program": "r" * 64}, {"program": ""}],
)
def test_a_program_of_which_something_changed_is_blamed(looked, change):
    def plant(case, number):
        slow = {"latency_ms": 1.08, **change} if case == 2 and number == BAD else {}
        return {**SAME, **slow}

    (finding,) = looked(noisy_nights(1, cases=8, plant=plant)).counted
    assert finding.first_bad.run_id == f"run-{BAD}"


def test_a_development_version_may_be_another_build(looked):
    def plant(case, number):
        slow = {"latency_ms": 1.08} if case == 2 and number == BAD else {}
        return {**SAME, "versions": {"jax": "0.11.0.dev20261101"}, **slow}

    report = looked(noisy_nights(1, cases=8, plant=plant))
    assert len(report.counted) == 1
    assert report.floor == {}


def test_a_step_no_larger_than_those_of_unchanged_programs_is_withheld(looked):
    # Half of the cases never change, and the machine slows all of them down on the last night.
    def plant(case, number):
        slow = {"latency_ms": 1.08} if number >= 15 else {}
        return {**(SAME if case % 2 else {}), **slow}

    report = looked(noisy_nights(1, cases=8, plant=plant))
    assert report.counted == []
    said = {finding.withheld for finding in report.findings if finding.metric == "latency_ms"}
    assert len(report.findings) == 8
    assert all("unchanged programs differ by up to" in text for text in said)


def test_short_series_are_told_and_not_judged(looked):
    report = looked(noisy_nights(1, nights=4, plant=planted(first=3, latency_ms=2.0)))
    assert report.findings == []
    assert (report.series, report.short, report.judged) == (4, 4, 0)


def test_the_command_names_the_slow_down_and_exits_with_2(cbs, history):
    path = history(noisy_nights(0, plant=planted(latency_ms=1.08)))
    code, out, _ = cbs("regressions", "--db", path)
    assert code == 2
    assert "case-2 jax_xla:xla (jax, host-cpu)" in out
    assert "changed: jax 0.10.28 -> 0.10.29, revision rev28 -> rev29" in out
    assert "steps: 1, newly failing: 0, missing: 0" in out
    code, out, _ = cbs("regressions", "--db", path, "--threshold", "latency_ms=0.2")
    assert code == 0


@pytest.mark.parametrize(
    ("plant", "code"),
    [
        (planted(first=40), 0),
        (planted(**GONE, status="wrong_output", reason="off"), 2),
        (lambda case, number: None if (case, number) == (2, BAD) else {}, 3),
        (planted(**GONE, status="unsteady"), 3),
    ],
    ids=["noise", "wrong output", "missing", "unsteady"],
)
def test_exit_codes(cbs, history, plant, code):
    path = history(noisy_nights(0, plant=plant))
    assert cbs("regressions", "--db", path)[0] == code


def test_text_of_a_file_can_not_steer_the_terminal(cbs, history, tmp_path):
    change = {**GONE, "status": "wrong_output", "reason": "off\x1b[2J", "revision": "r\x9b2J"}
    path = history(noisy_nights(0, plant=planted(**change)))
    code, out, _ = cbs("regressions", "--db", path)
    assert (code, "off\ufffd[2J" in out) == (2, True)
    code, _, err = cbs("import", "--db", path, tmp_path / "none\x1b[2J.json")
    assert (code, "none\ufffd[2J.json does not exist" in err) == (1, True)
    assert not {"\x1b", "\x9b"} & set(out + err)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.1234, "0.123"), (999.4, "999"), (999.9, "1000"), (12345.6, "12346"), (None, "-")],
)
def test_no_number_of_a_table_has_an_exponent(number, text):
    assert output.digits(number) == text


def test_an_empty_history_is_no_good_news(cbs, history):
    assert cbs("regressions", "--db", history([]))[0] == 3
    path = history(noisy_nights(0), "full.sqlite")
    assert cbs("regressions", "--db", path, "--backend", "nope")[0] == 3


def test_the_command_prints_json(cbs, history):
    path = history(noisy_nights(0, plant=planted(latency_ms=1.08)))
    code, out, _ = cbs("regressions", "--db", path, "--json")
    document = json.loads(out)
    (finding,) = document["findings"]
    assert code == 2
    assert (finding["kind"], finding["metric"], finding["withheld"]) == ("step", "latency_ms", None)
    assert finding["changed"]["jax"] == ["0.10.28", "0.10.29"]
    assert finding["first_bad"]["time"] == night(BAD)["time"].isoformat()
    assert document["series"] == 4


def all_three(case, number):
    if number < BAD:
        return {}
    if case == 0:
        return {"latency_ms": 1.08}
    return {**GONE, "status": "wrong_output", "reason": "off by 3"} if case == 1 else None


def test_the_yaml_has_the_keys_that_readers_of_torchbench_look_for(cbs, history, tmp_path):
    yaml = pytest.importorskip("yaml")
    path = history(noisy_nights(0, cases=5, plant=lambda c, n: all_three(c, n) if c < 3 else {}))
    code, *_ = cbs("regressions", "--db", path, "--yaml", tmp_path / "r.yaml", "--name", "nightly")
    assert code == 2
    document = yaml.safe_load((tmp_path / "r.yaml").read_text())
    assert list(document) == [
        *("name", "control_env", "treatment_env", "details", "control_only_metrics"),
        *("treatment_only_metrics", "bisection", "bisection_mode", "bisection_config_file_path"),
    ]
    assert document["name"] == "nightly"
    assert document["control_env"]["git_commit_hash"] == "rev28"
    assert document["treatment_env"]["versions"]["jax"] == "0.10.29"
    assert document["bisection"] == "jax"
    slow, wrong = sorted(document["details"].items())
    assert "model=case-0" in slow[0]
    assert "metric=latency_ms" in slow[0]
    assert slow[1]["delta"] == pytest.approx(0.08, abs=0.03)
    assert slow[1]["treatment"] / slow[1]["control"] - 1 == pytest.approx(slow[1]["delta"])
    assert (wrong[1]["control"], wrong[1]["treatment"]) == ("ok", "wrong_output")
    ((gone, _),) = document["control_only_metrics"].items()
    assert "model=case-2" in gone


@pytest.mark.parametrize(
    "command", [("query", "-o"), ("regressions", "--yaml"), ("regressions", "--issue")]
)
def test_results_and_history_are_never_written_over(
    cbs, history, tmp_path, make_trial, finished, command
):
    database = history(noisy_nights(0, cases=1))
    results = tmp_path / "results.json"
    write_results(results, make_trial, finished)
    for target in (database, results):
        before = target.read_bytes()
        code, _, said = cbs(*command, target, "--db", database)
        assert code == 1
        assert said == f"cbs: {target} contains results; choose another file for the output\n"
        assert target.read_bytes() == before


def test_yaml_reads_back_whatever_the_text_is():
    yaml = pytest.importorskip("yaml")
    texts = [
        "yes",
        "null",
        "1.5",
        "",
        "a: b",
        "- a",
        "#",
        "'\"\\",
        "\u2028 \x85 \x07\t\n",
        "😀",
        "é",
        "{}",
        "[",
        "&a",
        "*a",
        "on",
        "0x1f",
        "1:30",
        "!!python/object:os.system",
        # Long for a key, with ten characters for each.
        "\u00e9" * 200,
    ]
    document = {text: {"plain_key": text, text: [text, None, 1.5, True]} for text in texts}
    assert yaml.safe_load(as_yaml(document)) == document
    for rest in ({"details": {}}, {"delta": math.inf}, {"delta": -math.inf}):
        assert yaml.safe_load(as_yaml(rest)) == rest
    assert math.isnan(yaml.safe_load(as_yaml({"delta": math.nan}))["delta"])


def test_the_issue_has_the_sections_of_torchbench(cbs, history, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ENV", str(tmp_path / "env"))
    path = history(noisy_nights(0, cases=5, plant=lambda c, n: all_three(c, n) if c < 3 else {}))
    arguments = ("--issue", tmp_path / "issue.md", "--owner", "@owner")
    assert cbs("regressions", "--db", path, *arguments)[0] == 2
    text = (tmp_path / "issue.md").read_text()
    head, affected, gone, new, owner = text.split("\n\n", 3)[0], *text.split("\n\n")[-4:]
    assert "has detected a performance signal" in head
    assert affected.startswith("Affected Tests:\n- ")
    assert "`case-0 jax_xla:xla (jax, host-cpu)`" in affected
    assert "`jax 0.10.28 -> 0.10.29, revision rev28 -> rev29`" in affected
    assert "wrong\\_output" in affected
    assert gone.startswith("Tests that were no longer run on affected commit:\n- `case-2")
    assert new == "Tests that were newly added on affected commit:\n- none"
    assert owner == "cc @owner\n"
    assert (tmp_path / "env").read_text() == "TORCHBENCH_REGRESSION_DETECTED='rev29'\n"


def test_text_of_a_file_can_not_write_into_issue_or_workflow(history, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ENV", str(tmp_path / "env"))
    nasty = {"revision": "a\nPATH=/evil'", "reason": "<img src=x> @all [x](y)\n# big", **GONE}
    rows = noisy_nights(0, cases=2, plant=planted(case=1, status="failed", **nasty))
    with contextlib.closing(Database(str(history(rows)))) as database:
        found = find_regressions(database, Filter()).counted
    output.set_workflow_revision(found)
    assert (tmp_path / "env").read_text() == "TORCHBENCH_REGRESSION_DETECTED='aPATHevil'\n"
    text = output.issue_text(found, name="`x` @all")
    assert "\n# big" not in text
    assert "\\<img src=x\\> \\@all \\[x\\](y) \\# big" in text
    assert "The benchmark `'x' @all` has" in text


def test_what_is_new_is_named_and_no_regression(cbs, history, tmp_path):
    yaml = pytest.importorskip("yaml")
    path = history(noisy_nights(0, plant=lambda c, n: None if c == 1 and n < BAD else {}))
    files = ("--issue", tmp_path / "issue.md", "--yaml", tmp_path / "r.yaml")
    assert cbs("regressions", "--db", path, *files)[0] == 0
    assert "- `case-1 jax_xla:xla (jax, host-cpu)`: new: ok" in (tmp_path / "issue.md").read_text()
    document = yaml.safe_load((tmp_path / "r.yaml").read_text())
    ((name, what),) = document["treatment_only_metrics"].items()
    assert "model=case-1" in name
    assert what == "new: ok"
    assert document["details"] == document["control_only_metrics"] == {}


def test_the_first_run_of_all_is_not_new(looked):
    assert looked(noisy_nights(0, nights=1)).added == []
    assert looked(noisy_nights(0, nights=3)).added == []


def test_nothing_found_is_told_to_nobody(cbs, history, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_ENV", str(tmp_path / "env"))
    path = history(noisy_nights(0))
    code, *_ = cbs("regressions", "--db", path, "--issue", tmp_path / "issue.md")
    assert code == 0
    assert not (tmp_path / "env").exists()
    assert "- none" in (tmp_path / "issue.md").read_text()


def test_a_night_is_looked_at_in_the_order_of_time_not_of_import(looked):
    rows = noisy_nights(0, plant=planted(first=20, latency_ms=1.08))
    (finding,) = looked(rows[::-1]).counted
    assert finding.first_bad.run_id == "run-20"


def test_one_row_is_a_history_too(looked):
    assert looked([row()]).series == 1
