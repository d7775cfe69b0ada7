"""The page, the Markdown text, the chart and the command that write them."""

import datetime
import json
import re
from html.parser import HTMLParser

import pytest
from report_support import HOST, document, read, record, run, usual

from comparative_benchmark.cli import command as cli
from comparative_benchmark.reporting.report import details, inputs, trends, writing
from comparative_benchmark.reporting.report.details import Profiles
from comparative_benchmark.reporting.report.inputs import ReportError
from comparative_benchmark.reporting.report.summary import summarize
from comparative_benchmark.results.results_file import ResultsFileError
from comparative_benchmark.terminal.subjects import rerun_command

pytest.importorskip("jinja2", reason="the page needs the extra `report`")

from comparative_benchmark.reporting.report import page

pytestmark = pytest.mark.slow

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028 & \"'"
MADE = datetime.datetime(2026, 11, 22, 3, 4, tzinfo=datetime.UTC)


class Elements(HTMLParser):
    """Elements with their attributes, and the content of scripts."""

    def __init__(self, html):
        super().__init__()
        self.found, self.texts = [], {}
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.found:
            tag, attributes = self.found[-1]
            name = attributes.get("id") or tag
            self.texts[name] = self.texts.get(name, "") + data


def render(*documents, **options):
    return page.render(summarize(read(*documents), **options), title="A title", made=MADE)


def data_of(html):
    return json.loads(Elements(html).texts["data"])


def evil_document():
    evil = record(
        "w1",
        status="failed",
        reason=EVIL,
        benchmark_name=EVIL,
        tags=[EVIL],
        workload={"digest": "w1" * 8, "label": EVIL, "architecture": EVIL, "inputs": [EVIL]},
        device=EVIL,
        data_type=EVIL,
    )
    evil |= {"traceback": EVIL, "log_file": EVIL, "versions": {EVIL: EVIL}, "phase": EVIL}
    runs = [run(packages={EVIL: "1"}), run("r2", day=2, packages={EVIL: EVIL})]
    runs[0]["execution_environment"]["host"]["cpu_model"] = EVIL
    return document(evil, record("w2", "pt_inductor:eager"), runs=runs)


def test_nothing_of_a_file_becomes_markup():
    plain, evil = Elements(render(usual())), Elements(render(evil_document()))
    for elements in (plain, evil):
        assert [tag for tag, _ in elements.found].count("script") == 2
        assert not any(tag == "img" for tag, _ in elements.found)
        names = {name for _, attributes in elements.found for name in attributes}
        assert not any(name.startswith("on") for name in names)
        assert "style" not in names
    assert "alert(1)" not in "".join(evil.texts["script"])
    assert not set("<>&\u2028") & set(evil.texts["data"])
    assert EVIL in data_of(render(evil_document()))["texts"]


def test_the_page_needs_no_network_and_runs_only_its_own_script():
    html = render(usual())
    elements = Elements(html)
    for _, attributes in elements.found:
        for name in ("src", "href", "action", "srcset", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    assert not re.search(r"@import|url\(", html)
    policy = next(
        a["content"] for _, a in elements.found if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert html.count("</script>") == 2


def test_the_data_hold_each_case_with_its_figures():
    data = data_of(render(usual()))
    cases = data["cases"]
    assert data["count"] == len(cases["id"]) == 9
    text = data["texts"]
    rows = [data["workloads"][row]["label"] for row in cases["workload"]]
    names = [data["runners"][position]["competitor"] for position in cases["runner"]]
    position = list(zip(rows, names, strict=True)).index(("label-w2", "jax_xla:xla"))
    assert cases["speedup"][position][0] == pytest.approx(4.0, rel=0.01)
    assert cases["ms"][position][0] == pytest.approx(0.5, rel=0.01)
    assert text[cases["verdict"][position]] == "faster"
    assert cases["cold"][position] == [100]
    assert cases["warm"][position] == [10, 12]
    assert cases["allowed_error"][position] == 1e-6
    assert cases["samples"][position] == 120
    wrong = list(zip(rows, names, strict=True)).index(("label-w3", "jax_xla:xla"))
    assert cases["speedup"][wrong] is None
    assert cases["ms"][wrong] is None
    assert text[cases["reason"][wrong]] == "<b>off</b> by @team | 2"


def on_a_node(made):
    """Returns a run that a fleet started."""
    where = {"fleet": "zoo", "campaign": "", "machine_class": "zen4", "job": "j", "node": "n1"}
    where |= {"engine": "local", "environment_sha256": "0" * 64}
    return made | {"allocation": where}


def test_a_case_of_a_fleet_is_repeated_without_its_node():
    data = data_of(render(document(record("w1"), record("w2"), runs=[on_a_node(run())])))
    assert "n1" in data["workloads"][0]["device"]
    for index in data["cases"]["again"]:
        assert data["texts"][index].startswith("cbs run ")
        assert "n1" not in data["texts"][index]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"environment": {"name": "old", "python": "/a b/python"}},
        {"benchmark_name": "models/W1'; rm -rf x; '"},
        {"model_parameters": {"folder": "/a/folder", "test": "train"}},
    ],
    ids=["usual", "environment", "quote", "folder"],
)
def test_the_page_derives_only_the_usual_command(changes):
    made = document(record("w1", **changes))
    data = data_of(render(made))
    [case] = read(made).cases
    (again,) = data["cases"].get("again", [None])
    if changes:
        assert data["texts"][again] == rerun_command(case.result)
    else:
        # The text in `static/6-detail.js`.
        name = case.result.definition.benchmark_name
        derived = f"cbs run --backend jax_xla:xla -name {name} -device host-cpu -o again.json"
        assert (again, rerun_command(case.result)) == (None, derived)


def test_a_profile_with_an_impossible_name_has_no_link(tmp_path):
    made, name = record("w1"), "x" * 300
    profile = {"directory": str(tmp_path / "r.profiles"), "files": [name], "error": None}
    [case] = read(document({**made, "profile": profile})).cases
    links = Profiles(folders={"r": tmp_path}, page=tmp_path / "r.html").of(case.result)
    assert links["files"] == [[name, None]]


def test_tags_of_all_frameworks_are_those_of_the_workload():
    made = document(record(tags=["a"]), record(competitor="pt_inductor:eager", tags=["b", "a"]))
    (row,) = data_of(render(made))["workloads"]
    assert row["tags"] == ["a", "b"]


def test_the_first_screen_says_it_in_words(tmp_path):
    old = tmp_path / "old.json"
    old.write_text(json.dumps(document(*usual()["benchmarks"][:2])))
    html = " ".join(render(usual(), baseline_file=old).split())
    assert "<b>jax_xla:xla</b> <small>(jax)</small> is <b>2.8" in html
    assert "<b>1</b> of 9 results" in html
    assert "since old.json" in html
    assert '<a class="chip st-wrong_output" href="#status=wrong_output">' in html


def test_the_same_results_give_the_same_page():
    assert render(usual()) == render(usual())


def json_trends(tmp_path, *points, **names):
    path = tmp_path / "trends.json"
    series = {"case": "models/W1_JAX/inputs/DEFAULT", "competitor": "jax_xla:xla", **names}
    path.write_text(json.dumps({"trends": [{**series, "points": list(points)}]}))
    return path


def test_a_trend_joins_the_history_with_the_files_at_hand(tmp_path):
    path = json_trends(
        tmp_path,
        {"time": "2026-10-02T02:00:00+00:00", "value": 1.5, "versions": {"jax": "0.9"}},
        ["2026-10-01T02:00:00+00:00", 1.4, 1.3, 1.5, {"jax": "0.9"}],
    )
    older = document(record("w1", run_id="o", scale=1.2), runs=[run("o", day=1)])
    newer = document(record("w1", run_id="n"), runs=[run("n", day=2)])
    found = read(older, newer)
    with trends.open_trends([str(path)]) as source:
        summary = summarize(found, against="jax_xla:xla", trends=source)
    (points,) = summary.trends.values()
    assert [point.value for point in points] == pytest.approx([1.4, 1.5, 1.2, 1.0], rel=0.01)
    assert points[0].low == 1.3
    assert points[1].low is None
    assert points[-1].versions == {"python": "3.11.7", "jax": "0.10.2"}


def test_older_results_are_a_history_and_no_part_of_the_report(tmp_path):
    old = tmp_path / "old.json"
    records = [record("w1", run_id="o", scale=1.2), record("w2", run_id="o")]
    old.write_text(json.dumps(document(*records, runs=[run("o", day=1)])))
    found = read(document(record("w1", run_id="n"), runs=[run("n", day=2)]))
    with trends.open_trends([str(old)]) as source:
        summary = summarize(found, against="jax_xla:xla", trends=source)
    assert len(summary.judged) == 1
    (points,) = summary.trends.values()
    assert [point.value for point in points] == pytest.approx([1.2, 1.0], rel=0.01)
    assert points[0].low < 1.2 < points[0].high


def test_many_points_have_the_same_centre_and_no_interval(monkeypatch):
    cases = read(usual()).cases
    with_intervals = trends.points_of(cases)
    monkeypatch.setattr(trends, "_MOST_INTERVALS", 1)
    without = trends.points_of(cases)
    assert [case.id for case, _ in without] == [case.id for case, _ in with_intervals]
    assert [p.value for _, p in without] == pytest.approx([p.value for _, p in with_intervals])
    assert {p.low for _, p in without} == {None}


@pytest.mark.parametrize("with_host", [True, False])
@pytest.mark.parametrize(
    ("names", "count"),
    [
        ({}, 1),
        ({"machine": "A CPU"}, 1),
        ({"machine": "B"}, 0),
        ({"device": "host-cpu on n1 (zen4)"}, 1),
        ({"device": "host-cpu on n2 (zen4)"}, 0),
        ({"threads": 2}, 1),
        ({"threads": 8}, 0),
        ({"workload_digest": "0" * 64}, 0),
    ],
    ids=str,
)
def test_trends_of_other_measurements_are_not_taken(tmp_path, names, count, with_host):
    new = tmp_path / "new.json"
    new.write_text(json.dumps(document(record("w1"), runs=[on_a_node(run())])))
    found = inputs.read([new], with_host=with_host)
    path = json_trends(tmp_path, {"time": "2026-10-02T02:00:00+00:00", "value": 1.5}, **names)
    with trends.open_trends([str(path)]) as source:
        summary = summarize(found, against="jax_xla:xla", trends=source)
    assert len(summary.trends) == count


def compile_only(made):
    """Returns a record of compile times alone."""
    [[level, found]] = made["metrics"].items()
    times = {name: found[name] for name in ("compile", "compile_time_ms", "phases")}
    return made | {"metrics": {level: {**times, "stop_reason": "compile_only"}}}


@pytest.mark.parametrize(
    ("threads", "compiled", "count"),
    [(2, False, 1), (8, False, 0), (2, True, 0)],
    ids=["alike", "threads", "compile times"],
)
def test_only_alike_measurements_make_a_trend(tmp_path, threads, compiled, count):
    before = record("w1", run_id="o")
    older = document(
        compile_only(before) if compiled else before,
        runs=[run("o", day=1, host={**HOST, "threads": threads})],
    )
    newer = document(record("w1", run_id="n"), runs=[run("n", day=2)])
    path = tmp_path / "old.json"
    path.write_text(json.dumps(older))
    assert len(summarize(read(older, newer), against="jax_xla:xla").trends) == count
    with trends.open_trends([str(path)]) as source:
        assert len(summarize(read(newer), against="jax_xla:xla", trends=source).trends) == count
        [case] = read(older).cases
        assert bool(list(source(case))) != compiled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "neither a results file nor a trends file"),
        ('{"trends": [{"case": "a"}]}', r"`competitor` - at `\$\.trends\[0\]`"),
        (
            '{"trends": [{"case": "a", "competitor": "b", "points": [["2026-01-01", 1]]}]}',
            r"\$\.trends\[0\]\.points\[0\]",
        ),
        (
            '{"trends": [{"case": "a", "competitor": "b", "points": [{"value": 1}]}]}',
            r"`time` - at `\$\.trends\[0\]\.points\[0\]`",
        ),
        (
            '{"trends": [{"case": "", "competitor": "", "points": [["2026-01-01T00:00:00Z", 0]]}]}',
            r"\$\.trends\[0\]\.points\[0\]\[1\]",
        ),
    ],
)
def test_damaged_trends_are_refused_by_their_place(tmp_path, text, message):
    path = tmp_path / "trends.json"
    path.write_text(text)
    refused = pytest.raises((ReportError, ResultsFileError), match=message)
    with refused, trends.open_trends([str(path)]):
        pass


def test_nobody_wins_where_the_interval_holds_1():
    even = summarize(
        read(document(record("w1", "pt_inductor:eager"), record("w1", "jax_xla:xla", scale=0.9995)))
    )
    headline = writing.as_markdown(even, title="T").splitlines()[2]
    assert headline.startswith(
        "**No winner: no competitor is clearly faster than `pt_inductor:eager`"
    )
    won = writing.as_markdown(summarize(read(usual())), title="T").splitlines()[2]
    assert won.startswith("**`jax_xla:xla` (jax) is ")


def test_markdown_is_a_comment_that_nothing_in_it_can_break(tmp_path):
    old = tmp_path / "old.json"
    old.write_text(json.dumps(usual()))
    text = writing.as_markdown(summarize(read(usual()), baseline_file=old), title="T")
    assert "is 2.8" in text
    row = next(line for line in text.splitlines() if line.startswith("| `jax_xla:xla`"))
    assert row.count("|") == 6
    assert "2 of 3" in row
    assert "&lt;b&gt;off" in text
    assert "@team" not in text
    assert "- wrong_output: " in text


def test_markdown_of_many_failures_fits_into_a_comment(monkeypatch):
    records = [record(f"w{n}", status="failed", reason=f"{n} " + "long " * 200) for n in range(200)]
    text = writing.as_markdown(summarize(read(document(*records))), title="T")
    assert len(text) < 65_536
    assert "and 180 more" in text
    monkeypatch.setattr(writing, "MOST_CHARACTERS", 2000)
    cut = writing.as_markdown(summarize(read(document(*records))), title="T")
    assert len(cut) < 2200
    assert "truncated to fit a comment" in cut


@pytest.fixture
def cbs(capsys, monkeypatch):
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)

    def run_command(*arguments):
        code = cli.main(["report", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run_command


def test_the_command_writes_all_that_is_asked_for(cbs, tmp_path):
    results, target = tmp_path / "r.json", tmp_path / "deep" / "report.html"
    results.write_text(json.dumps(usual()))
    torn = tmp_path / "torn.json"
    torn.write_text("{")
    code, out, err = cbs(results, torn, "-o", target, "--markdown", "-", "--title", "Nightly")
    assert code == 1
    assert out.startswith("## Nightly")
    assert "page: " not in out
    assert "torn.json is not JSON" in err
    assert "<h1>Nightly</h1>" in target.read_text(encoding="utf-8")
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_the_chart_is_png_or_svg(cbs, tmp_path):
    pytest.importorskip("matplotlib", reason="charts need the extra `report`")
    results = tmp_path / "r.json"
    results.write_text(json.dumps(usual()))
    png, svg = tmp_path / "c.png", tmp_path / "c.svg"
    assert cbs(results, "--chart", png)[0] == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert cbs(results, "--chart", svg)[0] == 0
    assert "<svg" in svg.read_text()
    code, _, err = cbs(results, "--chart", tmp_path / "c.bmp")
    assert (code, "png or .svg" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to write"),
        (("-o", "r.html", "--against", "no:such"), "'no:such' is not among the competitors: "),
        (("-o", "r.html", "--baseline", "no:such"), "'no:such' is not among the competitors: "),
        (("-o", "r.html", "--since", "none.json"), "none.json does not exist"),
        (("-o", "r.html", "--baseline", "none.json"), "none.json does not exist"),
        (("-o", "r.html", "--history", "none.json"), "none.json does not exist"),
        (("-o", "/proc/no/r.html"), "cannot be written"),
    ],
)
def test_a_mistake_is_one_sentence(cbs, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.json").write_text(json.dumps(usual()))
    code, out, err = cbs("r.json", *arguments)
    assert (code, out) == (1, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_report_never_replaces_results(cbs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, files = json.dumps(document(record())), ("new.json", "old.json", "n.json", "more.json")
    for name in files:
        (tmp_path / name).write_text(content)
    places = [("-o", name) for name in files] + [("--markdown", "new.json"), ("--chart", "n.json")]
    for option, target in places:
        code, _, err = cbs("new.json", "--since", "old.json", "--history", "n.json", option, target)
        message = f"cbs: {target} contains results; choose another file for the output\n"
        assert (code, err) == (1, message)
        assert (tmp_path / target).read_text() == content


def test_a_page_since_older_results_names_no_host(cbs, tmp_path):
    old, new, page_file = tmp_path / "old.json", tmp_path / "new.json", tmp_path / "r.html"
    host = {**HOST, "hostname": "secret-host"}
    for path, run_id, day in ((old, "o", 1), (new, "n", 3)):
        ran = on_a_node(run(run_id, day=day, host=host))
        ran["trigger"]["command"] = ["cbs", "run", "/secret-folder/model.py"]
        path.write_text(json.dumps(document(record(run_id=run_id), runs=[ran])))
    for options, shown in ((), False), (("--with-host",), True):
        code, out, _ = cbs(new, "--since", old, "-o", page_file, "--markdown", "-", *options)
        assert code == 0
        # The results of the node are compared, because its pseudonym is the same in both.
        assert "0 missing; 1 of 1 cases compared" in out
        text = page_file.read_text(encoding="utf-8")
        assert ("secret-host" in text, "secret-folder" in text) == (shown, shown)
        assert "machine: hostname" not in text


def test_a_history_database_gives_trends(cbs, tmp_path):
    pytest.importorskip("sqlalchemy", reason="the history needs the extra `history`")
    from comparative_benchmark.reporting.history import results_files
    from comparative_benchmark.reporting.history.database import Database, import_files

    old, new, location = tmp_path / "old.json", tmp_path / "new.json", tmp_path / "history.sqlite"
    host = {**HOST, "python": "3.11.7"}
    before, after = (on_a_node(run(name, day=day, host=host)) for name, day in (("o", 1), ("n", 3)))
    old.write_text(json.dumps(document(record(run_id="o", scale=1.5), runs=[before])))
    new.write_text(json.dumps(document(record(run_id="n"), runs=[after])))
    database = Database(str(location))
    import_files(database, results_files.read, [old])
    database.close()
    target = tmp_path / "r.html"
    for source in (location, f"sqlite:///{location}"):
        # The node's pseudonym on the page matches its name in the history.
        code, _, err = cbs(new, "-o", target, "--history", source)
        assert (code, err) == (0, "")
        data = data_of(target.read_text(encoding="utf-8"))
        ((_, first, *_, old_set), (_, last, *_, new_set)) = next(iter(data["trends"].values()))
        assert (first, last) == pytest.approx((1.5, 1.0), rel=0.01)
        # The same packages in the same interpreter are not a change of versions.
        assert old_set == new_set
        assert data["versions"][new_set] == {"python": "3.11.7", "jax": "0.10.2"}
    code, _, err = cbs(new, "-o", target, "--history", f"sqlite:///{tmp_path}/none.sqlite")
    assert (code, len(err.splitlines())) == (1, 1)


def test_workloads_that_differ_by_their_inputs_alone_say_so():
    made = document(
        record("w1"),
        record(
            "w2",
            input_data="INPUT_DATA_LONG",
            workload={"digest": "w2" * 8, "label": "label-w1", "inputs": []},
        ),
    )
    rows = data_of(render(made))["workloads"]
    assert [(row["label"], row["input"]) for row in rows] == [
        ("label-w1", "INPUT_DATA_MODEL_DEFAULT"),
        ("label-w1", "INPUT_DATA_LONG"),
    ]


def of_batches():
    """Results of a model at two batch sizes."""
    for size in (1, 8):
        shape = {"digest": f"w{size}" * 8, "label": f"bert-{size}x4", "architecture": "bert"}
        for competitor, scale in (("pt_inductor:eager", 2.0), ("jax_xla:xla", 1.0)):
            made = record("w1", competitor, scale=scale, workload=shape, batch_size=size)
            [found] = made["metrics"].values()
            found["compile"] = {"cold_ms": [100 * scale + n for n in range(5)], "warm_ms": []}
            yield made


def test_compile_times_choose_no_competitor_for_a_batch_size():
    assert data_of(render(document(*of_batches())))["batches"]
    compiled = summarize(read(document(*map(compile_only, of_batches()))))
    assert data_of(page.render(compiled, title="A title", made=MADE))["batches"] == []
    headline = writing.as_markdown(compiled, title="A title").splitlines()[2]
    assert headline.endswith("on host-cpu, A CPU, cold compile)**")


def test_a_workload_has_its_own_data_type_whatever_a_recipe_computes_in():
    recipe = record("w1", "pt_inductor:inductor", precision="int8wo")
    data = data_of(render(document(recipe, record("w1", "pt_inductor:eager"))))
    assert [row["data_type"] for row in data["workloads"]] == ["fp32"]


def test_results_that_are_not_ranked_are_marked():
    doubted = record("w1", metrics={"not_ranked": "judged by itself"})
    data = data_of(render(document(doubted, record("w1", "pt_inductor:eager"))))
    assert data["cases"]["unranked"] == [1, None]


def test_a_recipe_is_not_the_fastest_that_others_are_explained_by(tmp_path, monkeypatch):
    found = read(
        document(
            record("w1", "pt_inductor:eager", scale=2.0),
            record("w1", "jax_xla:xla", scale=1.0),
            record("w1", "pt_inductor:inductor", scale=0.5, precision="int8wo"),
        )
    )
    (tmp_path / "r.profiles").mkdir()
    monkeypatch.setattr(details.published, "load", lambda *_: "a profile")
    monkeypatch.setattr(details, "explain", lambda slow, fast, _: (slow[0], fast[0]))
    monkeypatch.setattr(details, "_as_json", lambda pair: [r.definition.competitor for r in pair])
    explained = details.Explained(found.cases, {"r": tmp_path})
    assert [explained.of(case, None) for case in found.cases] == [
        ["pt_inductor:eager", "jax_xla:xla"],
        None,
        None,
    ]
