"""The ends of the command line: dead readers, closed streams, secrets."""

import subprocess
import sys

import pytest

from comparative_benchmark.terminal.streams import without_secrets

pytestmark = pytest.mark.slow

CBS = [sys.executable, "-m", "comparative_benchmark"]


def _shell(command, environment, tmp_path):
    return subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env={**environment, "CBS": " ".join(CBS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_gate_whose_reader_died_has_not_passed(environment, tmp_path):
    # `true` reads nothing; the list is longer than a pipe.
    done = _shell("$CBS list --json | true; echo ${PIPESTATUS[0]}", environment, tmp_path)
    assert done.stdout == "141\n"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_stores_no_false_result(environment, tmp_path, closed):
    command = (
        "$CBS run --suite cbs_test_plugin.suite --backend test_numpy -name 'models/TOY_NONE/.+' "
        f"-device host-cpu -w 1 -iter 3 -o results.json {closed}; code=$?; "
        'grep -o \'"status": *"[a-z_]*"\' results.json | sort -u; exit $code'
    )
    done = _shell(command, environment, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].replace(" ", "") == '"status":"ok"'


SECRET = "s3cret"


@pytest.mark.parametrize(
    "arguments",
    [
        ("artifacts", "fetch", "--url", f"https://user:{SECRET}@localhost:1/x"),
        ("artifacts", "fetch", "--url", f"https://localhost:1/x?token={SECRET}"),
        ("artifacts", "lock", f"https://user:{SECRET}@localhost:1/x", "-o", "lock.json"),
        ("artifacts", "lock", f"https://localhost:1/x?a=1&token={SECRET}", "-o", "lock.json"),
        ("report", "r.json", "-o", "p.html", "--history", f"postgresql://u:{SECRET}@localhost:1/h"),
        ("history", "ls", "--db", f"postgresql://u@localhost:1/h?password={SECRET}"),
        ("history", "query", "--db", f"postgresql://u:{SECRET}@localhost:1/h"),
    ],
)
def test_no_refusal_prints_a_secret(environment, tmp_path, arguments):
    (tmp_path / "r.json").write_text('{"schema_version": 1, "benchmarks": [], "runs": []}')
    done = subprocess.run(
        [*CBS, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("cbs: ")
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("a://u:p@h/x is not a store", "a://***@h/x is not a store"),
        (
            "https://h/x?k=v&token=t/manifest.json: no",
            "https://h/x?k=***&token=*** no",
        ),
        ("two: a://u@h, b://v:w@h", "two: a://***@h, b://***@h"),
        ("--deadline compile=600 and a@b.c stay", "--deadline compile=600 and a@b.c stay"),
        ("https://h:80/x stays", "https://h:80/x stays"),
    ],
)
def test_only_secrets_are_left_out(message, shown):
    assert without_secrets(message) == shown


def test_an_interrupt_is_not_lost_where_python_prints_exceptions_and_continues(
    environment, tmp_path
):
    program = """if True:
        import os, signal, sys, time, weakref
        from comparative_benchmark.cli import command
        from comparative_benchmark.cli.commands import catalog

        class Module: pass

        def handler(options):
            module = Module()
            watched = weakref.ref(module, lambda _: os.kill(os.getpid(), signal.SIGTERM))
            del module
            time.sleep(30)

        catalog.installed_backends = handler
        sys.exit(command.main(["backends"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr == "interrupted; finished results are kept\n"
