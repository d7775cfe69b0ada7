"""The OpenXLA suite's flags, in both spellings, on `cbs run` and on `run_benchmarks.py`."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from comparative_benchmark.analysis.stats.planning import FixedCounts, SamplingRule
from comparative_benchmark.api import measuring
from comparative_benchmark.cli import command as cli
from comparative_benchmark.cli.commands import run as run_command
from comparative_benchmark.cli.options.run import request_from
from comparative_benchmark.results.outcome import exit_code_of
from comparative_benchmark.results.record import Status

SPELLINGS = [
    ("output", ["-o", "--output"], "x.json", Path("x.json")),
    ("name", ["-name", "--benchmark_name", "--benchmark-name"], "models/.+", "models/.+"),
    ("device", ["-device", "--target_device", "--target-device"], "host-gpu", "host-gpu"),
    ("warmup_iterations", ["-w", "--warmup_iterations", "--warmup-iterations"], "7", 7),
    ("iterations", ["-iter", "--iterations"], "9", 9),
    ("root_dir", ["--root-dir", "--root_dir"], "root", Path("root")),
]
SWITCHES = [
    ("run_in_process", ["--run-in-process", "--run_in_process"]),
    ("generate_artifacts", ["--generate-artifacts", "--generate_artifacts"]),
    ("no_download", ["--no-download", "--no_download"]),
    ("verbose", ["--verbose"]),
]
REQUIRED = {"output": ["-o", "r.json"], "device": ["-device", "host-cpu"]}


@pytest.fixture(params=["cbs run", "run_benchmarks.py"])
def parse(request, monkeypatch):
    """Returns the options that a command line stands for, without running anything."""
    found = []
    monkeypatch.setattr(run_command, "run", lambda options: found.append(options) or 0)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)

    def run(*arguments):
        if request.param == "cbs run":
            assert cli.main(["run", "--backend", "jax_xla", *arguments]) == 0
        else:
            assert cli.run_backend_main("jax_xla", list(arguments)) == 0
        return found.pop()

    return run


@pytest.mark.parametrize(
    ("field", "spelling", "text", "value"),
    [(field, one, text, value) for field, all_, text, value in SPELLINGS for one in all_],
)
def test_a_flag_takes_its_value(parse, field, spelling, text, value):
    others = [word for key, words in REQUIRED.items() if key != field for word in words]
    assert getattr(parse(*others, spelling, text), field) == value


@pytest.mark.parametrize(("field", "spelling"), [(f, one) for f, all_ in SWITCHES for one in all_])
def test_a_switch_is_off_until_given(parse, field, spelling):
    required = [word for words in REQUIRED.values() for word in words]
    assert getattr(parse(*required), field) is False
    assert getattr(parse(*required, spelling), field) is True


def test_defaults(parse):
    options = parse("-o", "r.json", "-device", "host-cpu")
    assert options.timeout == 3600
    assert options.name is None
    assert options.backend == ("jax_xla",)


def test_counts_are_the_seeds_where_the_seed_has_them(parse, request):
    options = parse("-o", "r.json", "-device", "host-cpu")
    rule = measuring.sampling(request_from(options))
    if hasattr(options, "compiler"):
        assert rule == FixedCounts(warmup_iterations=5, iterations=100)
    else:
        assert rule == SamplingRule(seed=None)


@pytest.mark.parametrize(
    ("given", "counts"),
    [(["-w", "2"], (2, 100)), (["-iter", "3"], (5, 3)), (["-w", "0", "-iter", "3"], (0, 3))],
)
def test_a_given_count_makes_counts_fixed(parse, given, counts):
    rule = measuring.sampling(request_from(parse("-o", "r.json", "-device", "host-cpu", *given)))
    assert (rule.warmup_iterations, rule.iterations) == counts


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("8G", 8 * 2**30), ("512M", 2**29), ("1.5g", 3 * 2**29), ("2GiB", 2**31), ("64KB", 2**16)],
)
def test_sizes_are_powers_of_1024(parse, text, size_bytes):
    options = parse("-o", "r.json", "-device", "host-cpu", "--memory-limit", text)
    assert options.memory_limit == size_bytes


def test_deadlines_may_be_repeated(parse):
    options = parse(
        "-o", "r.json", "-device", "host-cpu", "--deadline", "compile=600", "--deadline", "load=1.5"
    )
    assert dict(options.deadline) == {"compile": 600.0, "load": 1.5}


@pytest.mark.parametrize("spelling", ["-c", "--compiler"])
def test_run_benchmarks_takes_compilers(monkeypatch, spelling):
    found = []
    monkeypatch.setattr(run_command, "run", lambda options: found.append(options) or 0)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    arguments = ["-o", "r.json", "-device", "host-cpu", spelling, "xla", spelling, "other"]
    assert cli.run_backend_main("jax_xla", arguments) == 0
    assert found[0].compiler == ["xla", "other"]
    assert request_from(found[0]).backends == ("jax_xla:xla", "jax_xla:other")


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (["ok"], 0),
        (["ok", "unsupported"], 0),
        (["unsupported"], 3),
        ([], 3),
        (["ok", "failed"], 1),
        (["ok", "timeout"], 1),
        (["crashed"], 1),
        (["ok", "wrong_output"], 2),
        (["wrong_output", "failed"], 2),
    ],
)
def test_exit_codes_tell_how_a_run_went(statuses, code):
    assert exit_code_of([SimpleNamespace(status=Status(s)) for s in statuses]) == code
