"""Operators over shapes, and recipes by their signal: the drawn points and their places."""

import json
import math
import sys
import zlib
from pathlib import Path

import pytest
from report_support import document, metrics, read, record

from comparative_benchmark.cli import command as cli
from comparative_benchmark.reporting.report import page
from comparative_benchmark.reporting.report.standings import judge
from comparative_benchmark.reporting.report.summary import summarize
from comparative_benchmark.results.comparing import plot_data
from comparative_benchmark.results.comparing.comparison import Verdict
from comparative_benchmark.terminal.tables import problems

pytestmark = pytest.mark.slow

BASELINE = "pt_inductor:eager"
MADE = Path(__file__).parents[3] / "benchmarks" / "_made_operators.py"


def of(competitor, shape, *, operator="matmul", scale=1.0, recipe=None, sqnr=None, **changes):
    """A record of an operator; `recipe` is a recipe of its competitor's compiler."""
    m, k, n = shape
    label = f"{operator}-fp32-{m}x{k}x{n}"
    found = metrics(scale, seed=zlib.crc32(f"{competitor}{recipe}{shape}".encode()))
    if recipe:
        competitor = f"{competitor}+{recipe}"
        applied = {"bytes_before": 400, "bytes_after": 100, "layers": 1, "linear": 2}
        found["program"] = {"notes": {"recipe": applied}}
        changes |= {"options": [recipe], "precision": recipe}
    found["final_verification"] = found["final_verification"] | {"sqnr_db": sqnr}
    if changes.get("status", "ok") != "ok":
        found = {}
    return record(
        label,
        competitor,
        metrics=found,
        model_parameters={"model_name": operator, "m": m, "k": k, "n": n, "data_type": "fp32"},
        workload={"digest": label, "label": label, "architecture": "operator/1", "inputs": []},
        **changes,
    )


def judged(*records, baseline=BASELINE):
    cases = read(document(*records)).cases
    return [(item.case, item.comparison) for item in judge(cases, baseline)]


def data_of(html):
    return json.loads(html.partition('id="data">')[2].partition("</script>")[0])


def test_a_shape_stands_at_what_varies_and_at_the_product_where_more_does():
    cubes = [(size, size, size) for size in (4, 8)]
    rows = [(4, 64, 1), (16, 64, 1)]
    records = [
        of(name, shape, operator=operator, scale=scale)
        for operator, shapes in (("matmul", cubes), ("softmax", rows))
        for shape in shapes
        for name, scale in ((BASELINE, 2.0), ("jax_xla:xla", 1.0))
    ]
    matmul, softmax = plot_data.shape_panels(judged(*reversed(records)))[::-1]
    assert (matmul.name, matmul.axis) == ("matmul, fp32", "m k n")
    assert (softmax.name, softmax.axis) == ("softmax, fp32", "m")
    assert list(matmul.series) == ["jax_xla:xla (jax)"]
    assert [point.at for point in matmul.series["jax_xla:xla (jax)"]] == [64, 512]
    assert [point.at for point in softmax.series["jax_xla:xla (jax)"]] == [4, 16]
    [point, _] = matmul.series["jax_xla:xla (jax)"]
    ratio = point.comparison.ratio
    assert point.speedup.estimate == pytest.approx(2.0, rel=0.02)
    # The limits of an inverse change places.
    assert point.speedup.low == 1 / ratio.high < point.speedup.high == 1 / ratio.low


def test_what_is_wrong_or_not_supported_is_listed_and_not_drawn():
    shapes = [(4, 4, 4), (8, 8, 8), (16, 16, 16)]
    [panel] = plot_data.shape_panels(
        judged(
            *(of(BASELINE, shape) for shape in shapes[:2]),
            of("jax_xla:xla", shapes[0], status="wrong_output"),
            of("jax_xla:xla", shapes[1]),
            of("jax_xla:xla", shapes[2]),
            of(BASELINE, shapes[2], status="unsupported"),
        )
    )
    assert [point.at for point in panel.series["jax_xla:xla (jax)"]] == [512]
    left_out = sorted((case.competitor, case.label) for case in panel.left_out)
    assert left_out == [
        ("jax_xla:xla", "matmul-fp32-16x16x16"),
        ("jax_xla:xla", "matmul-fp32-4x4x4"),
        (BASELINE, "matmul-fp32-16x16x16"),
    ]


def test_models_are_no_operators_and_strange_sizes_are_none():
    assert plot_data.shape_panels(judged(record("w1", BASELINE), record("w1"))) == []
    # Another direction is another operation.
    other = of("jax_xla:xla", (8, 8, 8))
    other["definition"]["model_parameters"]["direction"] = "backward"
    names = [panel.name for panel in plot_data.shape_panels(judged(of(BASELINE, (8, 8, 8)), other))]
    assert names == ["matmul, fp32", "matmul backward, fp32"]
    odd = of("jax_xla:xla", (4, 4, 4))
    odd["definition"]["model_parameters"]["k"] = "many"
    assert plot_data.shape_panels(judged(of(BASELINE, (8, 8, 8)), odd))[0].left_out == []


def test_a_line_leads_through_the_mean_of_what_stands_at_one_place():
    shapes = [(2, 8, 8), (8, 2, 8), (8, 8, 8)]
    records = [of(BASELINE, shape) for shape in shapes]
    records += [
        of("jax_xla:xla", shape, scale=scale)
        for shape, scale in zip(shapes, (0.5, 0.125, 1.0), strict=True)
    ]
    [panel] = plot_data.shape_panels(judged(*records))
    line = dict(plot_data.line(panel.series["jax_xla:xla (jax)"]))
    assert line == {128: pytest.approx(4.0, rel=0.02), 512: pytest.approx(1.0, rel=0.02)}


def recipes(shape, stack="pt_inductor:inductor", **scales):
    """A stack that takes 1 ms, and recipes by name: their time, and their signal."""
    return [
        of(stack, shape, operator="linear"),
        *(
            of(stack, shape, operator="linear", recipe=name, scale=scale, sqnr=sqnr)
            for name, (scale, sqnr) in scales.items()
        ),
    ]


def test_a_recipe_is_set_against_its_own_stack_whatever_the_baseline():
    shape = (4, 4, 4)
    cases = read(
        document(
            of(BASELINE, shape, operator="linear", scale=7.0),
            *recipes(shape, int8wo=(2.0, 40.0), int8dq=(0.5, 30.0)),
            of("jax_xla:xla", shape, operator="linear", recipe="int8wo", sqnr=40.0),
            of(BASELINE, shape, operator="linear", recipe="mxfp8", status="unsupported"),
        )
    ).cases
    [panel] = plot_data.recipe_panels(cases)
    slow, fast, alone, unsupported = panel.trades
    assert panel.name == "linear, fp32"
    assert {slow.stack, fast.stack} == {"pt_inductor:inductor (pytorch)"}
    assert slow.speedup.estimate == pytest.approx(0.5, rel=0.02)
    assert fast.speedup.estimate == pytest.approx(2.0, rel=0.02)
    assert (fast.recipe, fast.sqnr_db) == ("int8dq", 30.0)
    assert (alone.own, alone.speedup) == (None, None)
    assert alone.why == "the stack was not measured without the recipe"
    assert unsupported.why.startswith("unsupported in compile")
    assert panel.means == []


def test_a_frontier_is_of_a_stack_and_has_what_none_of_its_others_beats():
    shape = (4, 4, 4)
    mine = recipes(shape, a=(0.9, 50.0), b=(0.5, 40.0), worse=(0.6, 39.0), c=(0.4, 20.0))
    others = recipes(shape, "jax_xla:xla", a=(0.1, 60.0))
    [panel] = plot_data.recipe_panels(read(document(*mine, *others)).cases)
    fronts = plot_data.fronts(panel.trades)
    names = {stack: [trade.recipe for trade in front] for stack, front in fronts.items()}
    assert names == {"pt_inductor:inductor (pytorch)": ["a", "b", "c"], "jax_xla:xla (jax)": ["a"]}


def test_means_are_over_the_shapes_that_all_recipes_have():
    shapes = [(4, 4, 4), (8, 8, 8), (16, 16, 16)]
    records = [r for s in shapes[:2] for r in recipes(s, a=(0.5, 50.0), b=(s[0] / 16, 30.0 + s[0]))]
    records += recipes(shapes[2], a=(0.001, 50.0))
    [panel] = plot_data.recipe_panels(read(document(*records)).cases)
    a, b = panel.means
    assert (a.recipe, a.shapes, a.sqnr_db) == ("a", 2, 50.0)
    assert a.speedup.estimate == pytest.approx(2.0, rel=0.02)
    # 4 and 2 times as fast, at 34 and 38 dB.
    assert b.speedup.estimate == pytest.approx(math.sqrt(8), rel=0.02)
    assert b.sqnr_db == 36.0
    assert b.verdict is Verdict.FASTER


def test_a_compiler_that_stands_for_a_recipe_is_set_against_the_only_other():
    whole = of("tflite:native", (4, 4, 4), operator="linear")
    quantised = of(
        "tflite:int8", (4, 4, 4), operator="linear", scale=0.5, sqnr=30.0, precision="int8"
    )
    [panel] = plot_data.recipe_panels(read(document(whole, quantised)).cases)
    [trade] = panel.trades
    assert trade.stack == "tflite:native (jax)"
    assert trade.speedup.estimate == pytest.approx(2.0, rel=0.02)
    assert trade.recipe == "int8"


def test_the_page_gets_positions_and_no_number_twice():
    records = [
        *recipes((4, 4, 4), BASELINE, int8wo=(2.0, 40.0)),
        *recipes((8, 8, 8), BASELINE, int8wo=(0.5, 44.0)),
        of("jax_xla:xla", (4, 4, 4), operator="linear"),
        of("jax_xla:xla", (8, 8, 8), operator="linear", status="wrong_output"),
    ]
    data = page.build(summarize(read(document(*records))))
    [panel] = data["sweeps"]
    found = {name: points for name, points, _ in panel["series"]}
    assert found["jax_xla:xla (jax)"] == [[4, 64]]
    assert found["pt_inductor:eager+int8wo (pytorch)"] == [[1, 64], [3, 512]]
    assert panel["left_out"] == [5]
    [bits] = data["bits"]
    trades = [trade for shape in bits["shapes"] for trade in shape["trades"]]
    assert [(trade["case"], trade["own"]) for trade in trades] == [(1, 0), (3, 2)]
    # Against the baseline, which is its own stack: the same number by either way.
    assert [trade["speedup"] for trade in trades] == [data["cases"]["speedup"][at] for at in (1, 3)]
    assert data["cases"]["recipe"][1] == [400, 100, 1, 2]
    assert bits["means"][0]["shapes"] == 2
    # To run a shape again: `cbs run` knows no operators.
    assert data["workloads"][0]["micro"] == "--op linear --shapes 4x4x4 --dtype fp32"


def test_a_shape_is_run_again_by_the_command_that_knows_operators():
    case, evil = read(
        document(
            of("jax_xla:xla", (4, 8, 1), operator="softmax", status="failed"),
            of("jax_xla:xla", (4, 8, 1), operator="; rm *", status="failed"),
        )
    ).cases
    again = "cbs micro run --backend jax_xla:xla --op softmax --shapes 4x8x1 --dtype fp32 -device"
    assert again in problems([case.result], ())[0].plain
    assert "micro" not in problems([evil.result], ())[0].plain


def test_profiles_are_linked_where_they_lie_next_to_the_page(tmp_path):
    folder = "r.profiles/run/CASE-host+cpu"
    taken = {"directory": f"/elsewhere/{folder}", "files": ["trace.json", "gone.txt"]}
    records = [
        record("w1", BASELINE) | {"profile": taken},
        record("w1") | {"profile": {"directory": "/elsewhere/x.profiles/y", "error": "it hung"}},
        record("w2") | {"profile": {"directory": f"{tmp_path}/x.profiles/..", "files": ["r.json"]}},
        record("w3") | {"profile": {"directory": str(tmp_path), "files": ["r.json"]}},
    ]
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "trace.json").write_text("{}")
    (tmp_path / "x.profiles").mkdir()
    (tmp_path / "r.json").write_text(json.dumps(document(*records)))
    (tmp_path / "pages").mkdir()
    for name, start in (("p.html", ""), ("pages/p.html", "../")):
        assert cli.main(["report", str(tmp_path / "r.json"), "-o", str(tmp_path / name)]) == 0
        data = data_of((tmp_path / name).read_text())
        found = [data["profiles"][place] for place in data["cases"]["profile"]]
        link = f"{start}r.profiles/run/CASE-host%2Bcpu/trace.json"
        assert found[0]["files"] == [["trace.json", link], ["gone.txt", None]]
        assert found[1]["error"] == "it hung"
        # Another user's results file can only link into a folder of profiles.
        assert found[2]["files"] == found[3]["files"] == [["r.json", None]]


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """Twelve nights of operators and recipes; in the last two, one of each is slower."""
    folder = tmp_path_factory.mktemp("nights")
    sys.path.insert(0, str(MADE.parent))
    try:
        import _made_operators
    finally:
        sys.path.remove(str(MADE.parent))
    for night in range(12):
        made = _made_operators.document(range(4, 6), night=night, slower=night > 9)
        (folder / f"{night:02}.json").write_text(json.dumps(made))
    return folder


def test_the_history_finds_a_shape_and_a_recipe_that_became_slower(nights, tmp_path, capsys):
    pytest.importorskip("sqlalchemy", reason="the history needs the extra `history`")
    files = sorted(map(str, nights.glob("*.json")))
    database = ["--db", str(tmp_path / "h.sqlite")]
    assert cli.main(["history", "import", *files, *database]) == 0
    capsys.readouterr()
    assert cli.main(["history", "regressions", "--json", *database]) == 2
    report = json.loads(capsys.readouterr().out)
    names = {finding["name"] for finding in report["findings"]}
    assert names == {
        "matmul-fp32-32x32x32 jax_xla:xla (jax, host-cpu)",
        "linear-fp32-16x32x32 pt_inductor:eager+int8wo (pytorch, host-cpu)",
    }
    asked = ["--option", "int8wo", "--backend", "pt_inductor", "--limit", "1"]
    assert cli.main(["history", "query", *asked, "--format", "json", *database]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["compiler"], row["options"], row["data_type"]) == ("eager", ["int8wo"], "int8wo")
    assert row["extra"]["sqnr_db"] > 30
    assert row["extra"]["recipe"]["layers"] == 1
    page = tmp_path / "p.html"
    assert cli.main(["report", files[-1], "--history", database[1], "-o", str(page)]) == 0
    data = data_of(page.read_text())
    assert {len(points) for points in data["trends"].values()} == {12}
    # Each shape of each competitor, including recipes; a result that was never right has no trend.
    status = [data["texts"][place] for place in data["cases"]["status"]]
    ids = {key for key, ended in zip(data["cases"]["id"], status, strict=True) if ended == "ok"}
    assert data["trends"].keys() == ids
