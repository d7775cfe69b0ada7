"""Mistyped commands: one sentence with the remedy, exit code 1, no traceback."""

import json

import pytest

from comparative_benchmark.cli import command as cli
from comparative_benchmark.engine import runner

NAME = "models/BERT_TINY_FP32_JAX_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"


def prepare_nothing(*_):
    raise AssertionError("bad input came as far as starting a worker")


@pytest.fixture
def cbs(capsys, tmp_path, monkeypatch):
    """Runs `cbs` in this process; returns the exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(runner, "Preparation", prepare_nothing)

    def run(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as leave:
            code = leave.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert captured.out == ""
        return code, captured.err

    return run


@pytest.fixture
def cbs_run(cbs, tmp_path):
    """Runs `cbs run` with valid options, and given ones after or instead of them."""

    def run(*arguments, backend="jax_xla", device="host-cpu", output="results.json", name=NAME):
        options = ("--backend", backend, "-device", device, "-o", output, "-name", name)
        return cbs("run", *options, *arguments)

    return run


def test_a_name_that_matches_nothing_gets_the_nearest_and_how_to_list(cbs_run, tmp_path):
    code, said = cbs_run(name=NAME.replace("TINY", "TINI"))
    assert code == 1
    assert NAME in said
    assert "cbs list" in said
    assert list(tmp_path.glob("results*")) == []


@pytest.mark.parametrize("command", ["list", "run"])
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--tag", "nope"], "cbs list"),
        (["--framework", "ggml"], "cbs list"),
        (["--framework", "nope"], "choices are pytorch, jax, tensorflow"),
    ],
)
def test_a_tag_or_framework_that_matches_nothing_has_a_remedy(
    cbs, cbs_run, command, arguments, remedy
):
    code, said = cbs("list", *arguments) if command == "list" else cbs_run(*arguments)
    assert code == 1
    assert remedy in said


@pytest.mark.parametrize("command", ["list", "run"])
def test_a_malformed_expression_is_named(cbs, cbs_run, command):
    code, said = cbs("list", "-name", "models/(") if command == "list" else cbs_run(name="models/(")
    assert code == 1
    assert "'models/('" in said
    assert "not a regular expression" in said


def test_a_malformed_workload_expression_is_named(cbs):
    code, said = cbs("list", "--workload", "bert-(")
    assert code == 1
    assert "'bert-('" in said
    assert "not a regular expression" in said


UNKNOWN = [
    ({"device": "host-tpu"}, ["'host-tpu'", "host-cpu", "host-gpu", "c2-standard-16"]),
    ({"backend": "pt_xla"}, ["'pt_xla'", "iree", "jax_xla", "pt_inductor"]),
    ({"backend": "jax_xla:llvm"}, ["'llvm'", "choices are xla"]),
    ({"backend": "pt_inductor:inductor+fast"}, ["'fast'", "max-autotune", "freezing"]),
    ({"backend": "pt_inductor:eager+freezing"}, ["'freezing'", "(options: none)"]),
    ({"backend": ","}, ["no backend given", "jax_xla"]),
    ({"backend": "jax_xla,nope"}, ["'nope'", "jax_xla"]),
]


@pytest.mark.parametrize(("options", "words"), UNKNOWN)
def test_an_unknown_device_backend_compiler_or_option_gets_the_choices(
    cbs_run, options, words, tmp_path
):
    code, said = cbs_run(**options)
    assert code == 1
    for word in words:
        assert word in said
    assert list(tmp_path.glob("results*")) == []


def test_a_backend_that_takes_no_selected_case_is_named(cbs_run):
    code, said = cbs_run(backend="pt_inductor")
    assert code == 1
    assert "pt_inductor:inductor supports none of the selected cases" in said
    assert "nothing to run" in said


BAD_OPTIONS = [
    *(["--memory-limit", value] for value in ("8X", "lots", "-1G", "", "0", "0G", "nan", "1e3")),
    *(["--deadline", value] for value in ("compile", "=5", "compile=", "compile=soon")),
    *(["--deadline", value] for value in ("compile=-1", "compile=0", "compile=nan", "compile=inf")),
    *(["--timeout", value] for value in ("soon", "0", "-1", "nan", "inf")),
    *(["-w", value] for value in ("-1", "x", "1.5", "")),
    *(["-iter", value] for value in ("0", "-1", "x", "1e3")),
    *(["--threads", value] for value in ("0", "x")),
]


@pytest.mark.parametrize("arguments", BAD_OPTIONS, ids=" ".join)
def test_a_bad_number_names_option_and_value_and_no_function_of_ours(cbs_run, arguments, tmp_path):
    option, value = arguments
    # `--option=value`, so that a value that begins with a dash is one.
    pair = f"{option}={value}" if option.startswith("--") else f"{option}{value}"
    code, said = cbs_run(pair if value else option, *([] if value else [""]))
    assert code == 1
    assert option in said
    assert value.rpartition("=")[2] in said
    assert "invalid _" not in said
    assert list(tmp_path.glob("results*")) == []


def test_a_deadline_for_a_phase_that_does_not_exist_is_refused(cbs_run):
    """A typo could otherwise give a deadline that is never reached."""
    code, said = cbs_run("--deadline", "compil=600")
    assert code == 1
    assert "'compil'" in said
    assert "first_run" in said


@pytest.mark.parametrize("arguments", [[], ["nope"], ["list", "--nope"], ["show"]], ids=" ".join)
def test_an_incomplete_or_unknown_command_exits_with_1_and_not_with_the_code_of_wrong_output(
    cbs, arguments
):
    code, said = cbs(*arguments)
    assert code == 1
    assert "usage: cbs" in said


@pytest.mark.parametrize(
    ("arguments", "said_of_it"),
    [
        (["rnu"], "cbs: unknown command 'rnu'; did you mean run?"),
        (["run", "--bakend", "iree"], "cbs run: unknown option --bakend; did you mean --backend?"),
        (["run", "--model", "net.onnx"], "cbs run: unknown option --model"),
        (["run", "-t", "trian"], "cbs run: unknown -t/--test 'trian'; did you mean train?"),
        (["micro", "lits"], "cbs micro: unknown action 'lits'; did you mean list?"),
        (["list", "bert"], "cbs list: unexpected argument bert"),
    ],
)
def test_a_usage_error_is_two_lines_with_what_was_meant(cbs, arguments, said_of_it):
    code, said = cbs(*arguments)
    assert code == 1
    assert said.splitlines()[0] == said_of_it
    assert said.splitlines()[1:] == [f"usage: {said_of_it.partition(':')[0]} --help"]


def test_a_run_of_nothing_in_particular_asks_what_is_to_be_run(cbs, tmp_path):
    code, said = cbs("run")
    assert code == 1
    assert "-name REGEX" in said
    assert list(tmp_path.iterdir()) == []


def test_a_run_needs_a_name_and_nothing_else(cbs, tmp_path, monkeypatch):
    """Every installed backend, on this CPU, into a new file."""
    asked = []
    monkeypatch.setattr(
        runner,
        "plan",
        lambda cases, competitors, device: (
            asked.append((cases, competitors, device)) or runner.Plan(trials=[], idle=[])
        ),
    )
    code, said = cbs("run", "-name", NAME)
    ((cases, competitors, device),) = asked
    assert [case.name for case in cases] == [NAME]
    assert len({competitor.backend.name for competitor in competitors}) > 1
    assert device.name == "host-cpu"
    assert "nothing to run" in said
    assert code == 1
    assert (tmp_path / "results").is_dir()


def test_an_output_below_a_file_is_refused_before_anything_runs(cbs_run, tmp_path):
    (tmp_path / "file").write_text("content")
    code, said = cbs_run(output="file/results.json")
    assert code == 1
    assert "file/results.json cannot be written" in said
    assert (tmp_path / "file").read_text() == "content"


@pytest.mark.parametrize("output", [".", "/"])
def test_an_output_that_is_a_directory_is_refused(cbs_run, output):
    code, said = cbs_run(output=output)
    assert code == 1
    assert "cannot be" in said or "directory" in said


@pytest.mark.parametrize("content", ['{"a": 1}', "name,latency\n", '{"schema_version": 2}'])
def test_a_foreign_output_is_refused_and_left_as_it_is(cbs_run, tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    code, said = cbs_run()
    assert code == 1
    assert "results.json" in said
    assert "-o" in said
    assert (tmp_path / "results.json").read_text() == content


@pytest.mark.parametrize("suite", ["no_such_suite", "./suite.py", ""])
def test_a_suite_that_can_not_be_imported_is_named(cbs, suite):
    code, said = cbs("list", "--suite", suite)
    assert code == 1
    assert f"suite {suite!r}" in said


def test_a_suite_that_breaks_on_import_is_named_with_its_reason(cbs, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_cli_suite.py").write_text("from os import no_such_name\n")
    code, said = cbs("list", "--suite", "broken_cli_suite")
    assert code == 1
    assert "broken_cli_suite" in said
    assert "no_such_name" in said


def test_showing_a_file_that_is_not_there_or_foreign_reports_it(cbs, tmp_path):
    code, said = cbs("show", "results.json")
    assert (code, "results.json does not exist" in said) == (1, True)
    (tmp_path / "results.json").write_text(json.dumps({"a": 1}))
    code, said = cbs("show", "results.json")
    assert (code, "is not a results file" in said) == (1, True)


def test_an_unknown_compiler_of_run_benchmarks_gets_the_choices(capsys, monkeypatch):
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    code = cli.run_backend_main(
        "pt_inductor", ["-device", "host-cpu", "-o", "r.json", "-c", "xla", "-name", NAME]
    )
    assert code == 1
    said = capsys.readouterr().err
    assert "'xla'" in said
    assert "choices are eager, inductor" in said
