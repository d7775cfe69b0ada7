"""Every command that prints a table prints JSON, too."""

import json

import pytest
from report_support import document, record

from comparative_benchmark.cli import command as cli
from comparative_benchmark.cli.command import main, parse

EAGER, XLA = "pt_inductor:eager", "jax_xla:xla"


def test_show_prints_results_and_verdicts(tmp_path, capsys):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document(record("w1", EAGER, scale=2.0), record("w1", XLA))))
    assert main(["show", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["baseline"] == EAGER
    eager, xla = found["results"]
    assert eager["latency_low_ms"] <= eager["latency_ms"] <= eager["latency_high_ms"]
    assert xla["competitor"] == XLA
    [verdict] = found["verdicts"]
    assert verdict["verdict"] == "faster"


def test_run_prints_what_it_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    name = "models/BERT_TINY_FP32_PT_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"
    command = ["run", "--backend", "test_absent", "-name", name, "-o", str(tmp_path / "r.json")]
    assert main([*command, "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in found["results"]] == ["unsupported"]
    assert found["verdicts"] == []


def test_backends_prints_compilers_and_recipes(capsys):
    assert main(["backends", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "eager" in found["backends"]["pt_inductor"]["compilers"]
    assert "jax" in found["backends"]["jax_xla"]["models"]
    assert found["recipes"]


@pytest.mark.parametrize(
    "words",
    [
        *(["list"], ["backends"], ["doctor"], ["parity"], ["run", "-name", "x"]),
        *(["show", "r.json"], ["compare", "a.json", "b.json"], ["explain", "r.json"]),
        *(["micro", "list"], ["history", "regressions"]),
    ],
)
def test_commands_with_tables_have_the_option(words):
    assert parse([*words, "--json"]).json
