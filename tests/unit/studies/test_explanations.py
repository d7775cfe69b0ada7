"""`cbs explain` on results with profiles: where time is lost, and the choice of two results."""

import json

import attrs
import pytest
from report_support import document, read, record, run
from results_support import completed, plain_document

import comparative_benchmark as cb
from comparative_benchmark.analysis.roofline.ceilings import Ceilings, Copy, Gemm
from comparative_benchmark.api.results import Results
from comparative_benchmark.backends.operator_profile import (
    FILE,
    Operator,
    OperatorProfile,
    combined,
    write,
)
from comparative_benchmark.cli import command as cli
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results import published
from comparative_benchmark.results.comparing.explanations import BETWEEN, explain
from comparative_benchmark.results.results_file import encode
from comparative_benchmark.studies.explain import explained

EAGER, XLA = "pt_inductor:eager", "jax_xla:xla"
SLOW = OperatorProfile(
    stack="PyTorch",
    iterations=3,
    operators=(
        Operator(name="aten::addmm 32x512x128", us=900.0, flops=9e5, bytes=1e3),
        Operator(name="aten::gelu", us=600.0),
        Operator(name="aten::copy_", us=100.0),
    ),
    breaks=("2 x print",),
)
FAST = OperatorProfile(
    stack="JAX",
    iterations=3,
    operators=(
        Operator(name="fusion.1", does="dot, add", us=700.0, flops=9e5, bytes=1e3),
        Operator(name="fusion.2", does="multiply, tanh", us=250.0),
    ),
    fusions=("2 generated fusions",),
    remarks=("[bold]verbatim[/bold]",),
)
CEILINGS = Ceilings(
    cpu_model="A CPU",
    threads=2,
    date="2026-11-01",
    gemms=(Gemm(data_type="fp32", library="torch", version="1", size=512, gflops=4.0),),
    copies=(Copy(threads=2, buffer_bytes=10, version="1", gb_per_s=10.0),),
)


def two(*more, **changes):
    """A document with an eager result of 3 ms and one of XLA of 1 ms, of one workload."""
    records = (record("w", EAGER, scale=3.0), record("w", XLA, scale=1.0, **changes), *more)
    return completed({"runs": [run()], "benchmarks": list(records)})


@pytest.fixture
def file(tmp_path):
    """A results file with profiles of both next to it."""
    found = two()
    path = tmp_path / "r.json"
    path.write_bytes(encode(found))
    for result, profile in zip(found.benchmarks, (SLOW, FAST), strict=True):
        folder = published.folder_for(path, result)
        folder.mkdir(parents=True)
        write(profile, folder)
    return path


def slowed(profile, factor):
    """The operators of a profile, all of them slower."""
    return tuple(attrs.evolve(each, us=each.us * factor) for each in profile.operators)


def test_several_profiles_have_the_median_and_its_spread():
    profiles = [attrs.evolve(SLOW, operators=slowed(SLOW, factor)) for factor in (1.5, 1.0, 0.5)]
    found = combined(profiles, "others")
    assert found.operators == SLOW.operators
    assert found.disturbed == "others"
    eager, xla = two().benchmarks
    rows = {row.kind: row for row in explain((xla, FAST), (eager, found)).rows}
    products = rows["matrix products"]
    assert (products.slow.lowest_ms, products.slow.ms, products.slow.highest_ms) == pytest.approx(
        (0.45, 0.9, 1.35)
    )
    # Of the two 0.2 ms apart, 0.45 and 0.7 ms: within the spread.
    assert not products.is_beyond_spread
    assert rows["copies and layouts"].is_beyond_spread
    between = rows[BETWEEN].slow
    assert between.highest_ms - between.lowest_ms == pytest.approx(1.6)


def test_the_spread_of_profiles_and_what_disturbed_them_is_reported(file, capsys):
    repeats = (slowed(SLOW, 1.2), slowed(SLOW, 0.9))
    write(
        attrs.evolve(
            SLOW, repeats=repeats, disturbed="other processes used the CPUs during 1 of 3 profiles"
        ),
        published.folder_for(file, two().benchmarks[0]),
    )
    assert cli.main(["explain", str(file), "--no-profiling"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "0.9 (0.81 to 1.08)" in told
    assert "(median of 3 profiles; the table shows their range)" in told
    assert (
        f"{EAGER}: other processes used the CPUs during 1 of 3 profiles; profile again with --again"
        in told
    )


def test_what_is_lost_adds_up_to_the_difference():
    eager, xla = two().benchmarks
    found = explain((xla, FAST), (eager, SLOW), CEILINGS)
    assert found.slow.competitor == EAGER
    lost = {row.kind: row.lost_ms for row in found.rows}
    assert lost["matrix products"] == pytest.approx(0.2)
    assert lost["elementwise"] == pytest.approx(0.35)
    assert lost["copies and layouts"] == pytest.approx(0.1)
    assert sum(lost.values()) == pytest.approx(found.lost_ms)
    assert list(lost.values()) == sorted(lost.values(), reverse=True)
    assert next(iter(lost)) == BETWEEN
    assert found.slow.cover == pytest.approx(1.6 / found.slow.latency_ms)
    [products] = [row for row in found.rows if row.kind == "matrix products"]
    # 9e5 flop at 4 GFLOP/s are 225 us.
    assert products.slow.of_roof == pytest.approx(0.25)
    assert products.fast.operators[0].of_roof == pytest.approx(225 / 700)
    [others] = [row for row in found.rows if row.kind == "elementwise"]
    assert others.slow.of_roof is None


def test_without_times_nothing_is_said_to_be_lost():
    eager, xla = two().benchmarks
    listed = OperatorProfile(stack="s", iterations=1, operators=(Operator(name="CONV_2D"),))
    found = explain((eager, SLOW), (xla, listed), None)
    assert {row.lost_ms for row in found.rows} == {None}
    assert found.fast.cover is None
    assert found.lost_ms > 0


def test_the_command_prints_a_table_and_what_the_compilers_did(file, capsys):
    assert cli.main(["explain", str(file)]) == 0
    told = capsys.readouterr()
    lines = [line.removeprefix(" ") for line in told.out.splitlines()]
    table = [line for line in lines if line.startswith(("elementwise", "matrix", "copies"))]
    assert [line.split()[0] for line in table] == ["elementwise", "matrix", "copies"]
    assert "+0.35" in table[0]
    assert any("aten::gelu" in line for line in lines)
    assert any("fusion.2 (multiply, tanh)" in line for line in lines)
    assert " graph break: 2 x print" in lines
    assert " fused: 2 generated fusions" in lines
    # A stack's text is not markup.
    assert " note: [bold]verbatim[/bold]" in lines
    assert any("jax_xla:xla is 3 times as fast as pt_inductor:eager" in line for line in lines)
    assert any("% of the latency" in line for line in lines)
    assert "\x1b" not in told.out


def test_a_profile_that_takes_far_longer_explains_nothing(file, capsys):
    folder = published.folder_for(file, two().benchmarks[1])
    write(attrs.evolve(FAST, operators=slowed(FAST, 2)), folder)
    assert cli.main(["explain", str(file)]) == 0
    out = capsys.readouterr().out
    assert "so they do not explain the difference" in " ".join(out.split())
    assert "largest difference" not in out


def test_json_has_all_of_it(file, capsys):
    assert cli.main(["explain", str(file), EAGER, XLA, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["slow"]["competitor"] == EAGER
    assert found["slow"]["profile"]["breaks"] == ["2 x print"]
    assert found["lost_ms"] == pytest.approx(sum(row["lost_ms"] for row in found["rows"]))


def test_a_profile_that_is_broken_or_not_kept_is_said(file, capsys):
    [path] = file.parent.rglob(f"*eager*/{FILE}")
    path.write_text("{")
    assert cli.main(["explain", str(file)]) == 1
    assert "is not a valid profile" in (said := capsys.readouterr().err)
    assert "--again" in said
    path.unlink()
    assert cli.main(["explain", str(file), "--no-profiling"]) == 1
    assert f"no profile for {EAGER} is stored" in capsys.readouterr().err
    assert cli.main(["explain", str(file), "--no-profiling", "--again"]) == 1
    assert cli.main(["explain", str(file.parent / "none.json")]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_profiles_of_a_run_are_found_where_they_were_written_or_beside(tmp_path):
    [eager, _] = plain_document()["benchmarks"][:2]
    directory = "/elsewhere/old.profiles/run/trial"
    eager |= {"profile": {"directory": directory, "files": ["trace.json", FILE], "iterations": 3}}
    [result] = completed({"benchmarks": [eager]}).benchmarks
    assert published.find(tmp_path, result) is None
    beside = tmp_path / "old.profiles/run/trial"
    beside.mkdir(parents=True)
    write(SLOW, beside)
    assert published.load(tmp_path, result) == SLOW
    # A file from elsewhere names folders of profiles, and nothing outside of them.
    eager["profile"]["directory"] = str(tmp_path / "old.profiles/../old.profiles/run/trial")
    [result] = completed({"benchmarks": [eager]}).benchmarks
    assert published.find(tmp_path, result) is None


def test_a_result_names_no_folder_outside():
    [result] = completed({"benchmarks": [record(run_id="../../x")]}).benchmarks
    assert ".." not in published._place(result).parts


@pytest.mark.parametrize(
    ("asked", "options", "reason"),
    [
        (["a", "b", "c"], {}, "expected at most two competitors, got 3"),
        (["openvino"], {}, "'openvino' matches no competitor for label-w"),
        (["iree"], {}, "'iree:llvm-cpu' has no latency|iree:llvm-cpu/jax has no latency"),
        ([], {"case": "("}, "is not a regular expression"),
        ([], {"case": "resnet"}, "no case in the file matches 'resnet'"),
        ([], {"device": "host-gpu"}, "no results for device host-gpu"),
        ([XLA, XLA], {}, "expected two competitors with a latency"),
    ],
)
def test_what_cannot_be_chosen_is_said(asked, options, reason):
    found = two(record("w", "iree:llvm-cpu", status="failed"))
    with pytest.raises(UsageError, match=reason):
        explained.choose(found, asked, **options)


def test_the_slowest_and_the_fastest_unless_others_are_asked_for():
    found = two(record("w", "iree:llvm-cpu", scale=2.0))

    def chosen(*asked):
        return [case.competitor for case in explained.choose(found, asked)]

    assert chosen() == [EAGER, XLA]
    assert chosen("iree") == ["iree:llvm-cpu", XLA]
    assert chosen("jax_xla") == [EAGER, XLA]
    assert chosen("iree:llvm-cpu/jax", EAGER) == [EAGER, "iree:llvm-cpu"]


def test_recipes_are_explained_only_if_asked_for_or_if_there_is_nothing_else():
    recipe = record("w", "pt_inductor:inductor", scale=0.1, precision="int8wo")
    assert explained.choose(two(recipe), [])[1].competitor == XLA
    name = "pt_inductor:inductor"
    assert explained.choose(two(recipe), [name])[1].competitor == name
    others = completed({"runs": [run()], "benchmarks": [record("w", EAGER), recipe]})
    assert explained.choose(others, [])[1].competitor == name


def test_a_later_compile_time_hides_no_latency():
    compiled = record("w", XLA)
    compiled["metrics"] = {"framework_level": {"stop_reason": "compile_only"}}
    assert [case.competitor for case in explained.choose(two(compiled), [])] == [EAGER, XLA]


def test_one_workload_at_a_time():
    several = two(record("v", XLA), record("v", EAGER))
    with pytest.raises(UsageError, match="2 workloads; choose one with --case"):
        explained.choose(several, [])
    first, second = explained.choose(several, [], case="label-v")
    assert first.label == second.label == "label-v"


def test_workloads_with_the_same_label_are_not_compared():
    other = {"digest": "v" * 8, "label": "label-w", "inputs": ["1xf32"]}
    several = two(record("v", "iree:llvm-cpu", workload=other))
    with pytest.raises(UsageError, match="2 workloads; choose one with --case"):
        explained.choose(several, [])


def test_only_workloads_of_the_chosen_device_count():
    several = two(record("v", XLA, device="host-gpu"))
    assert [case.label for case in explained.choose(several, [], device="host-cpu")] == [
        *("label-w", "label-w")
    ]


def test_the_page_has_it_next_to_the_case(file):
    pytest.importorskip("jinja2", reason="the page needs the extra `report`")
    from comparative_benchmark.reporting.report import inputs, page
    from comparative_benchmark.reporting.report.summary import summarize

    data = page.build(summarize(inputs.read([file])))
    [explained] = data["explained"]
    positions = data["cases"]["explained"]
    assert positions.count(0) == positions.count(None) == 1
    assert explained["competitors"] == [EAGER, XLA]
    assert {row[0] for row in explained["rows"]} >= {"matrix products", BETWEEN}
    assert [EAGER, "graph break", "2 x print"] in explained["lines"]
    [path] = file.parent.rglob(f"*eager*/{FILE}")
    path.write_text("{")
    data = page.build(summarize(inputs.read([file])))
    assert "cannot be read" in data["explained"][0]["error"]
    plain = page.build(summarize(read(document(record(), record(competitor=EAGER)))))
    assert plain["explained"] == []


def test_python_explains_as_the_command_does(file, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["explain", str(file), XLA, EAGER]) == 0
    printed = capsys.readouterr().out.split()
    explained = cb.explain_results(cb.load(file), XLA, EAGER)
    assert str(explained).split() == repr(explained).split() == printed
    assert explained.explanation.slow.competitor == EAGER
    assert cb.explain_results(str(file)).explanation == explained.explanation


def test_python_cannot_explain_results_without_a_file_or_a_second_competitor(file):
    results = cb.load(file)
    with pytest.raises(UsageError, match=r"not in a file; save them with results\.save\(path\)"):
        cb.explain_results(Results(results.document))
    with pytest.raises(UsageError, match="'iree' matches no competitor"):
        cb.explain_results(results, "iree")


def test_a_profile_that_cannot_be_read_is_a_usage_error(file):
    path = published.folder_for(file, two().benchmarks[0]) / FILE
    path.write_text("{")
    with pytest.raises(UsageError, match=r"^no profile: .* is not a valid profile"):
        cb.explain_results(file)
