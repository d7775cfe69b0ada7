"""The first table of a user: missing packages, narrow terminals, and the copy in README."""

import re
from pathlib import Path

import pytest
from report_support import document, record
from results_support import decoded

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.backends.missing_packages import Absence
from comparative_benchmark.cli import command as cli
from comparative_benchmark.engine.trial import installed_competitors
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.published import published
from comparative_benchmark.results.results_file import read_document
from comparative_benchmark.terminal.console import Console
from comparative_benchmark.terminal.tables import results_table
from openxla.benchmark.def_types import ModelFrameworkType

ROOT = Path(__file__).parents[3]
EAGER, XLA, INDUCTOR = "pt_inductor:eager", "jax_xla:xla", "pt_inductor:inductor"
LABEL = "label-w1"


def script(extra):
    return {"setup_script": "./some/setup_venv.sh", "install": f"pip install -e '.[{extra}]'"}


def absent(competitor, name="w1", **absence):
    """A record of a trial whose packages are not installed."""
    found = record(name, competitor, status="unsupported", reason="see its absence")
    return {**found, "phase": "import", "absence": {"modules": ["a", "b"], **absence}}


def cases(*records):
    return cases_of(decoded(document(*records)))


def shown(capsys, *records, **options):
    Console().results(cases(*records), **options)
    return capsys.readouterr().out


def test_what_is_not_installed_has_one_line_and_no_rows(capsys):
    records = [
        record("w1", EAGER),
        record("w1", XLA),
        *(absent("iree:llvm-cpu", name, **script("all")) for name in ("w1", "w2")),
        absent("openvino:latency", **script("all")),
        absent("tf_xla:xla", **script("tf_xla")),
        absent("other:it", install="pip install c"),
        absent("jax_xla:other", install="pip install tensorflow"),
        absent("onnx:recipe", modules=["c", "d"], install="pip install d", recipes_of="onnx"),
        absent("late:one", modules=["d"], environment="old", python="/a/python"),
    ]
    out = shown(capsys, *records, baseline=EAGER)
    (line,) = [line for line in out.splitlines() if "not installed" in line]
    assert line == (
        "not installed: iree, openvino (pip install -e '.[all]'), "
        "tf_xla (pip install -e '.[tf_xla]'), other (pip install c), "
        "jax_xla for jax models (pip install tensorflow), "
        "c, d for onnx recipes (pip install d), "
        "late (d in the environment old: /a/python)"
    )
    assert out.count("openvino") == 1
    assert "unsupported" not in out
    # The mean is over trials that could run, so these do not count as missing.
    assert "over 1 of 1 cases" in out


def test_a_published_absence_names_no_folder():
    found = absent("late:one", modules=["d"], environment="old", python="/home/me/old/bin/python")
    [result] = published(decoded(document(found))).benchmarks
    assert result.absence.python == ".../python"


@pytest.mark.parametrize("reason", ["no such operator", "a not installed; run it"])
def test_what_is_unsupported_without_an_absence_keeps_its_row_and_its_reason(capsys, reason):
    found = record("w1", "iree:llvm-cpu", status="unsupported", reason=reason)
    out = shown(capsys, record("w1", EAGER), {**found, "phase": "import"})
    assert re.search(r"iree:llvm-cpu .* unsupported", out)
    assert f"in import: {reason}" in out
    assert "not installed: iree" not in out


def test_a_run_of_nothing_that_is_installed_says_what_to_install(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    name = "models/BERT_TINY_FP32_PT_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"
    path = tmp_path / "r.json"
    options = ["--backend", "test_absent", "-name", name, "-device", "host-cpu", "-o", str(path)]
    assert cli.main(["run", *options]) == 3
    line = "not installed: test_absent (pip install a-module-that-is-missing)\n"
    assert capsys.readouterr().out == line
    (kept,) = read_document(path).benchmarks
    assert kept.status.value == "unsupported"
    assert kept.absence == Absence(
        modules=("a_module_that_is_missing",), install="pip install a-module-that-is-missing"
    )
    assert kept.reason == kept.absence.sentence


def test_what_takes_none_of_the_models_is_not_named_as_what_to_install(make_trial):
    model = make_trial().case.model
    assert model.model_impl.framework_type is ModelFrameworkType.JAX
    _, every = installed_competitors("cpu")
    _, fitting = installed_competitors("cpu", models=[model])
    assert "test_absent" in every  # it takes PyTorch's models alone
    assert "test_absent" not in fitting
    assert set(fitting) <= set(every)


def terminal(monkeypatch, width):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(width)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)


def lines_of(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()


RACE = (
    record("w1", EAGER, scale=2.0),
    record("w1", INDUCTOR, scale=1.0),
    record("w1", XLA, status="wrong_output"),
    record("w1", "iree:llvm-cpu"),
    {
        **record("w1", "iree:llvm-cpu"),
        "definition": {
            **record("w1", "iree:llvm-cpu")["definition"],
            "framework": "ModelFrameworkType.PYTORCH",
            "benchmark_name": "models/W1_OTHER/inputs/DEFAULT",
        },
    },
)


def test_eighty_columns_show_latencies_ratios_and_verdicts(capsys, monkeypatch):
    terminal(monkeypatch, 80)
    lines = lines_of(shown(capsys, *RACE, baseline=EAGER))
    assert max(map(len, lines[:9])) <= 80
    heading = next(line for line in lines if "workload" in line)
    assert re.split(r"\s{2,}", heading.strip()) == [
        *("workload, backend", "latency ms", "speed-up (98 %)", "verdict")
    ]
    assert [line.strip() for line in lines].count(LABEL) == 1
    rows = {cells[0]: cells[1:] for line in lines if (cells := re.split(r"\s{2,}", line.strip()))}
    assert rows["pt_inductor:inductor"][-1] == "faster"
    assert rows["pt_inductor:eager"][-2:] == ["1", "baseline"]
    # A wrong output has its status instead of a latency.
    assert rows["jax_xla:xla"] == ["wrong_output", "-", "-"]
    # The same competitor twice is distinguished; text without room is continued, not cut.
    assert {"iree:llvm-cpu (jax)", "iree:llvm-cpu", "(pytorch)"} <= rows.keys()
    text = " ".join(" ".join(lines).split())
    assert re.search(r"not shown: from, compile s, peak MiB.* columns need a width of \d+ ", text)


def test_a_wide_terminal_and_a_pipe_show_all_columns(capsys, monkeypatch):
    piped = shown(capsys, *RACE, baseline=EAGER)
    terminal(monkeypatch, 200)
    wide = "\n".join(lines_of(shown(capsys, *RACE, baseline=EAGER)))
    for text in (piped, wide):
        assert "peak MiB" in text
        assert "…" not in text


def test_a_baseline_that_failed_has_no_ratio():
    table = results_table(cases(record("w1", EAGER, status="failed")), baseline=EAGER).table
    cells = {column.header: list(column.cells) for column in table.columns}
    assert cells["speed-up (98 %)"] == ["-"]
    assert list(map(str, cells["verdict"])) == ["baseline"]


def test_readme_shows_the_table_as_it_is_printed(capsys, monkeypatch):
    """The columns and the kinds of cells; the digits are of the day when it was run."""
    _, _, text = (ROOT / "README.md").read_text(encoding="utf-8").partition("test.sh  ")
    block = text.split("```")[2]
    assert max(map(len, block.splitlines())) <= 80
    heading, *rows = [
        re.split(r"\s{2,}", line.strip()) for line in block.splitlines() if re.search(r"\w", line)
    ]
    terminal(monkeypatch, 80)
    lines = lines_of(shown(capsys, record("w1", EAGER), record("w1", XLA), baseline=EAGER))
    assert heading == re.split(
        r"\s{2,}", next(line for line in lines if "workload" in line).strip()
    )
    rows = [row for row in rows if len(row) == len(heading)]
    assert [row[0] for row in rows] == [XLA, EAGER, INDUCTOR] * 2
    for _, latency, ratio, verdict in rows:
        interval = r"[\d.]+ \([\d.]+-[\d.]+\)"
        assert re.fullmatch(interval, latency)
        if verdict == "baseline":
            assert ratio == "1"
        else:
            assert re.fullmatch(interval, ratio)
            low, high = map(float, re.findall(r"[\d.]+", ratio)[1:])
            assert Verdict(verdict)
            assert verdict not in ("faster", "slower") or not low <= 1 <= high
