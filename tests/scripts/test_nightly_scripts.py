"""The scripts behind the workflows, run for real: stores, GitHub, requests, nights, races."""

import http.client
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import bench_support
import pytest
from gcs_emulator import BUCKET, ProxyFault, gcs_emulator
from report_support import document, metrics, record
from tests_support import python_path

from comparative_benchmark.interop.milabench import config
from openxla.benchmark.installation import ROOT_DIR_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"


def _run(*command, environment=None, cwd=ROOT, stdin=None, timeout_s=900):
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _python(script, *arguments, **options):
    return _run(sys.executable, SCRIPTS / script, *arguments, **options)


# The request of a pull request.


@pytest.fixture(scope="module")
def checkout_of_torchbench(tmp_path_factory):
    """A checkout with the folders that TorchBench's has."""
    root = tmp_path_factory.mktemp("benchmark")
    for name in ("nvfuser", "test-userbenchmark"):
        (root / "userbenchmark" / name).mkdir(parents=True)
        (root / "userbenchmark" / name / "run.py").write_text("def run(args): ...\n")
    for name in ("hf_Bert", "yolov3"):
        (root / "torchbenchmark" / "models" / name).mkdir(parents=True)
        model = root / "torchbenchmark" / "models" / name / "__init__.py"
        model.write_text("class Model: ...\n")
    (root / "torchbenchmark" / "models" / "__init__.py").write_text("")
    return root


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("RUN_BENCHMARK: BERT_TINY", "models/BERT_TINY.*/.+DEFAULT\n\nmodels\n"),
        (
            "Fast.\r\n\r\n  RUN_BENCHMARK:  BERT_TINY_FP32_JAX \t jax_xla,iree:llvm-cpu \r\nAnd.",
            "models/BERT_TINY_FP32_JAX.*/.+DEFAULT\njax_xla,iree:llvm-cpu\nmodels\n",
        ),
        ("RUN_BENCHMARK: A\nRUN_BENCHMARK: A", "models/A.*/.+DEFAULT\n\nmodels\n"),
        ("<!-- RUN_BENCHMARK: NAME\n-->\nRUN_BENCHMARK: A", "models/A.*/.+DEFAULT\n\nmodels\n"),
        ("RUN_BENCHMARK: torchbench/hf_Bert pt_inductor", "hf_Bert.*\npt_inductor\ntorchbench\n"),
        ("RUN_BENCHMARK: bench/flops", "flops\n\nbench\n"),
        ("RUN_BENCHMARK: userbenchmark/milabench", "milabench\n\nuserbenchmark\n"),
        ("RUN_BENCHMARK: test-userbenchmark", "test-userbenchmark\n\nuserbenchmark\n"),
        ("RUN_TORCHBENCH: nvfuser", "nvfuser\n\nuserbenchmark\n"),
        (
            "Text.\r\n RUN_TORCHBENCH: nvfuser ,milabench  pt_inductor\r\n",
            "nvfuser|milabench\npt_inductor\nuserbenchmark\n",
        ),
        ("RUN_TORCHBENCH: hf_Bert,yolov3", "hf_Bert|yolov3\n\ntorchbench\n"),
        ("RUN_TORCHBENCH: ALL pt_inductor:eager", ".+\npt_inductor:eager\ntorchbench\n"),
    ],
)
def test_a_request_is_read(text, asked, checkout_of_torchbench):
    for inside in ("", "torchbenchmark", "torchbenchmark/models"):
        done = _python(
            "pr_request.py",
            stdin=text,
            environment={"CBS_TORCHBENCH": str(checkout_of_torchbench / inside)},
        )
        assert (done.returncode, done.stdout) == (0, asked), done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "RUN_BENCHMARK:",
        "RUN_BENCHMARK: $(touch /tmp/x)",
        "RUN_BENCHMARK: A; touch x",
        "RUN_BENCHMARK: A jax_xla;touch",
        "RUN_BENCHMARK: `id`",
        "RUN_BENCHMARK: ../../etc",
        "RUN_BENCHMARK: (A+)+$",
        "RUN_BENCHMARK: A -o/etc/passwd",
        "RUN_BENCHMARK: -A",
        "RUN_BENCHMARK: torchbench/../A",
        "RUN_BENCHMARK: elsewhere/A",
        "RUN_BENCHMARK: " + "A" * 101,
        "RUN_BENCHMARK: \N{CYRILLIC CAPITAL LETTER A}",
        "RUN_BENCHMARK: A\nRUN_BENCHMARK: B",
        "RUN_BENCHMARK: A\nRUN_TORCHBENCH: milabench",
        "RUN_BENCHMARK: userbenchmark/no-such",
        "RUN_BENCHMARK: no-such",
    ],
)
def test_what_is_no_name_is_refused(text):
    done = _python("pr_request.py", stdin=text)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "RUN_BENCHMARK" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RUN_TORCHBENCH:", "write RUN_TORCHBENCH: NAMES [BACKENDS]"),
        ("RUN_TORCHBENCH: $(id)", "write RUN_TORCHBENCH: NAMES [BACKENDS]"),
        ("RUN_TORCHBENCH: ../userbenchmark/nvfuser", "write RUN_TORCHBENCH: NAMES"),
        ("RUN_TORCHBENCH: nvfusr", "no userbenchmark or model 'nvfusr'; did you mean nvfuser?"),
        ("RUN_TORCHBENCH: what", "userbenchmarks are nvfuser, test-userbenchmark, comparative_"),
        ("RUN_TORCHBENCH: what", "models are hf_Bert, yolov3"),
        ("RUN_TORCHBENCH: hf_Bert, nvfuser", "nvfuser is a userbenchmark, but not all"),
    ],
)
def test_an_unknown_name_of_torchbench_is_refused_with_those_that_exist(
    text, words, checkout_of_torchbench
):
    variables = {"CBS_TORCHBENCH": str(checkout_of_torchbench)}
    done = _python("pr_request.py", stdin=text, environment=variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr


def test_models_of_torchbench_need_a_checkout(monkeypatch):
    monkeypatch.delenv("CBS_TORCHBENCH", raising=False)
    for name in ("hf_Bert", "ALL"):
        done = _python("pr_request.py", stdin=f"RUN_TORCHBENCH: {name}")
        assert done.returncode == 1
        assert "CBS_TORCHBENCH names no folder with models" in done.stderr


@pytest.mark.parametrize("text", ["", "no request", "write `RUN_BENCHMARK: A` to run it"])
def test_a_text_that_asks_for_nothing_is_no_request(text):
    assert _python("pr_request.py", stdin=text).returncode == 3


# Files in a store.


@pytest.fixture
def gcs(monkeypatch):
    with gcs_emulator() as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        yield proxy


@pytest.fixture(params=["gs", "directory"])
def store_url(request, tmp_path):
    if request.param == "directory":
        return str(tmp_path / "store")
    request.getfixturevalue("gcs")
    return f"gs://{BUCKET}/suite"


def test_files_go_to_a_store_once_and_come_back_once(store_url, tmp_path):
    one = tmp_path / "one.json"
    one.write_text('{"night": 1}')
    for _ in range(2):
        done = _python("store.py", "put", store_url, one, "nights/n1/one.json")
        assert done.returncode == 0, done.stderr
    _python("store.py", "put", store_url, one, "nights/n2/page.html")
    back = tmp_path / "back"
    first = _python("store.py", "sync", store_url, "nights/", back, "--suffix", ".json")
    assert "1 of them new" in first.stdout, first.stderr
    assert (back / "nights" / "n1" / "one.json").read_text() == '{"night": 1}'
    assert not (back / "nights" / "n2").exists()
    again = _python("store.py", "sync", store_url, "nights/", back, "--suffix", ".json")
    assert "0 of them new" in again.stdout
    listed = _python("store.py", "list", store_url)
    assert [line.split()[1] for line in listed.stdout.splitlines()] == [
        "nights/n1/one.json",
        "nights/n2/page.html",
    ]


def test_another_content_under_a_name_is_refused(store_url, tmp_path):
    file = tmp_path / "one.json"
    file.write_text("1")
    _python("store.py", "put", store_url, file, "one.json")
    file.write_text("2")
    done = _python("store.py", "put", store_url, file, "one.json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    _python("store.py", "sync", store_url, "", tmp_path / "back")
    assert (tmp_path / "back" / "one.json").read_text() == "1"


def test_a_broken_answer_is_asked_for_again(gcs, tmp_path):
    file = tmp_path / "one.json"
    file.write_text("content")
    _python("store.py", "put", f"gs://{BUCKET}", file, "one.json")
    gcs.inject("^GET /download/", ProxyFault())
    done = _python("store.py", "sync", f"gs://{BUCKET}", "", tmp_path / "back")
    assert done.returncode == 0, done.stderr
    assert gcs.injected["connection cut"] == 1
    assert (tmp_path / "back" / "one.json").read_text() == "content"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", ""])
def test_no_name_leads_out_of_a_folder(name, tmp_path):
    functions = runpy.run_path(str(SCRIPTS / "store.py"))
    with pytest.raises(functions["StoreError"], match="is not a valid file name below"):
        functions["path_of"](tmp_path, name)


def test_a_store_that_is_not_there_is_reported_in_a_sentence(tmp_path):
    done = _python("store.py", "put", "ftp://example.org/x", __file__, "x")
    assert done.returncode == 1
    assert done.stderr.startswith("store: ftp://example.org/x: ftp:// is not supported")


# GitHub.


OURS = {"login": "github-actions[bot]"}


class GitHub(ThreadingHTTPServer):
    """As much of the REST interface as the script uses."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _GitHubHandler)
        self.issues = []
        self.comments = []
        self.tokens = set()

    def answer(self, method, path, body):
        page = int(re.search(r"[?&]page=(\d+)", path)[1]) if "page=" in path else 1
        where = path.partition("?")[0].removeprefix("/repos/owner/name/")
        if (method, where) == ("GET", "issues"):
            assert "state=open" in path
            assert "labels=nightly" in path
            return 200, self.issues[100 * (page - 1) : 100 * page]
        if (method, where) == ("POST", "issues"):
            issue = {**body, "number": len(self.issues) + 1, "html_url": "https://github/issue"}
            self.issues.append(issue)
            return 201, issue
        if match := re.fullmatch(r"issues/(\d+)/comments", where):
            on = [c for c in self.comments if c["on"] == int(match[1])]
            if method == "GET":
                return 200, on[100 * (page - 1) : 100 * page]
            comment = {**body, "on": int(match[1]), "id": len(self.comments), "user": OURS}
            self.comments.append({**comment, "html_url": "https://github/comment"})
            return 201, self.comments[-1]
        if match := re.fullmatch(r"issues/comments/(\d+)", where):
            self.comments[int(match[1])] |= body
            return 200, self.comments[int(match[1])]
        return 404, {"message": "Not Found"}


class _GitHubHandler(BaseHTTPRequestHandler):
    def _do(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.tokens.add(self.headers["Authorization"])
        status, content = self.server.answer(self.command, self.path, body)
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PATCH = _do  # noqa: N815  # names that the base class calls

    def log_message(self, *_):
        pass


@pytest.fixture
def github():
    server = GitHub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def _post(server, *arguments, **changes):
    variables = {
        "GITHUB_API_URL": f"http://127.0.0.1:{server.server_port}",
        "GITHUB_REPOSITORY": "owner/name",
        "GITHUB_TOKEN": "secret-token",
    }
    return _python("github_post.py", *arguments, environment={**variables, **changes})


def test_a_regression_opens_one_issue_which_then_gets_comments(github, tmp_path):
    text = tmp_path / "issue.md"
    text.write_text("slower by 8 %")
    github.issues += [
        {"number": 1, "title": "Other", "body": "x"},
        {"number": 2, "title": "Nightly", "body": "x", "pull_request": {}},
    ]
    arguments = ("issue", "--title", "Nightly", "--label", "nightly", text)
    for _ in range(2):
        done = _post(github, *arguments)
        assert done.returncode == 0, done.stderr
    assert [issue["title"] for issue in github.issues] == ["Other", "Nightly", "Nightly"]
    assert github.issues[2]["labels"] == ["nightly"]
    assert [(c["on"], c["body"]) for c in github.comments] == [(3, "slower by 8 %")]
    assert github.tokens == {"Bearer secret-token"}


def test_an_issue_is_found_on_a_later_page(github, tmp_path):
    text = tmp_path / "issue.md"
    text.write_text("again")
    github.issues += [{"number": n, "title": f"{n}", "body": ""} for n in range(1, 151)]
    github.issues += [{"number": 151, "title": "Nightly", "body": ""}]
    _post(github, "issue", "--title", "Nightly", "--label", "nightly", text)
    assert len(github.issues) == 151
    assert github.comments[0]["on"] == 151


def test_a_pull_request_has_one_comment_which_is_replaced(github, tmp_path):
    text = tmp_path / "table.md"
    arguments = ("comment", "--pull", "7", "--marker", "pr-benchmark", text)
    for content in ("first", "second"):
        text.write_text(content)
        assert _post(github, *arguments).returncode == 0
    [comment] = github.comments
    assert comment["on"] == 7
    assert comment["body"] == "<!-- pr-benchmark -->\nsecond"


def test_a_text_that_is_too_long_is_cut_at_a_line_and_reports_it(github, tmp_path):
    text = tmp_path / "table.md"
    text.write_text("a line of the table\n" * 5000)
    _post(github, "comment", "--pull", "7", "--marker", "x", text)
    body = github.comments[0]["body"]
    assert len(body) < 65_536
    assert body.endswith("(truncated; the full text has 100000 characters)\n")
    assert "a line of the table\n\n(truncated" in body


@pytest.fixture(scope="module")
def github_post():
    return runpy.run_path(str(SCRIPTS / "github_post.py"))


def test_a_text_of_one_long_line_is_cut_within_it(github_post):
    text = github_post["shortened"]("x" * 70_000)
    assert text.startswith("x" * 60_000)
    assert text.endswith("\n\n(truncated; the full text has 70000 characters)\n")
    assert len(text) < 65_536


def test_an_answer_that_breaks_off_is_an_error_of_the_request(github_post):
    def broken(*_, **__):
        raise http.client.IncompleteRead(b"")

    variables = {"GITHUB_REPOSITORY": "owner/name", "GITHUB_TOKEN": "secret-token"}
    api = github_post["Api"](variables)
    api._opener = SimpleNamespace(open=broken)
    with pytest.raises(github_post["ApiError"], match=r"GET issues: IncompleteRead"):
        api.call("GET", "issues")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"GITHUB_TOKEN": ""}, "GITHUB_TOKEN must be set"),
        ({"GITHUB_REPOSITORY": "a/b/../c"}, "is not of the form owner/name"),
        ({"GITHUB_API_URL": "http://example.org"}, "does not use https"),
        ({"GITHUB_API_URL": "http://127.0.0.1:1"}, "Connection refused"),
        ({"GITHUB_REPOSITORY": "owner/other"}, "404"),
    ],
)
def test_github_that_says_no_is_told_without_the_token(github, tmp_path, changes, message):
    text = tmp_path / "issue.md"
    text.write_text("x")
    done = _post(github, "issue", "--title", "T", "--label", "nightly", text, **changes)
    assert done.returncode == 1
    assert message in done.stderr
    assert "secret-token" not in done.stderr
    assert "Traceback" not in done.stderr


# Exit codes.


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [(0, 0, 0), (0, 3, 3), (3, 1, 1), (1, 2, 2), (2, 0, 2), (130, 0, 130), (130, 2, 2)],
)
def test_the_reason_that_matters_most_is_the_exit_code(first, second, together):
    script = (
        f"source {SCRIPTS}/nightly_environment.sh; worse {first} {second}; worse {second} {first}"
    )
    done = _run("bash", "-euc", script)
    assert done.stdout.split() == [str(together)] * 2, done.stderr


@pytest.mark.parametrize("option", ["--bench", "--torchbench"])
def test_what_others_have_brought_is_looked_for_before_anything_runs(tmp_path, option):
    done = _run(
        SCRIPTS / "nightly.sh",
        *("--tiny", "--folder", tmp_path / "night", option, tmp_path / "nowhere"),
        environment={"CBS_VENV": sys.prefix},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"nightly: {tmp_path}/nowhere does not exist\n"


def test_a_night_that_the_history_refuses_in_part_is_reported(tmp_path):
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    refuses = f'touch "{tmp_path}/work/night/report.html"; [ "$2" != import ]'
    for name, command in {"cbs": refuses, "python": f'exec "{sys.executable}" "$@"'}.items():
        (programs / name).write_text(f"#!/bin/sh\n{command}\n")
        (programs / name).chmod(0o755)
    results = tmp_path / "host-cpu.json"
    results.touch()
    done = _run(
        SCRIPTS / "nightly_publish.sh",
        *(tmp_path / "store", tmp_path / "work", results),
        environment={"CBS_VENV": str(tmp_path / "venv"), "NIGHT": "1"},
    )
    assert done.returncode == 1, done.stderr
    reported = "not all results are in the history (see above), but all are in"
    assert f"nightly: {reported} {tmp_path}/store/nights\n" in done.stderr


def test_an_environment_without_cbs_is_refused(tmp_path):
    done = _run(
        SCRIPTS / "nightly_shard.sh",
        *("host-cpu", "jax_xla", "x", tmp_path / "r.json"),
        environment={"CBS_VENV": str(tmp_path)},
    )
    assert done.returncode == 1
    assert f"no cbs in {tmp_path}" in done.stderr


# Nights and races.

TOY = ("--backend", "test_numpy", "--name", "models/TOY_(NONE|BUSY)/.+")
TOY_SUITE = ("--", "--suite", "cbs_test_plugin.suite")
COUNTS = ("-w", "1", "-iter", "3")
RACES = ("--processes", "3", "--precision", "0.5")


@pytest.fixture
def nightly(tmp_path, environment):
    """Runs nightly.sh in this environment, in a separate folder."""
    (tmp_path / "locks").mkdir()
    variables = {
        **environment,
        ROOT_DIR_VARIABLE: str(tmp_path / "root"),
        "CBS_VENV": sys.prefix,
        "CBS_LOCKS_DIR": str(tmp_path / "locks"),
    }

    def run(*arguments, **changes):
        command = (SCRIPTS / "nightly.sh", "--folder", tmp_path / "nightly", *arguments)
        return _run(*command, environment={**variables, **changes})

    run.folder = tmp_path / "nightly"
    return run


def _published(folder):
    store = folder / "store"
    return sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(COUNTS, id="counts"),
        pytest.param(RACES, id="races", marks=[pytest.mark.alone, pytest.mark.nightly]),
    ],
)
def test_nights_are_published_and_the_second_one_shows_trends(nightly, tmp_path, sampling):
    bench_support.write(tmp_path / "script")
    script = bench_support.configured(tmp_path / "bench.yaml", script=[])
    bench_support.installed(config.read(script), tmp_path / "root" / "milabench")
    where = ("--store", nightly.folder / "store", "--bench", script)
    for night in ("1", "2"):
        done = nightly(*where, *TOY, *TOY_SUITE, *sampling, NIGHT=night)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        assert "nightly: regressions: no problems" in done.stderr
    published = _published(nightly.folder)
    for night in ("1", "2"):
        for name in ("host-cpu.json", "report.html", "report.md"):
            assert f"nights/{night}/{name}" in published
    queried = _run(
        *(Path(sys.prefix) / "bin" / "cbs", "history", "query", "--format", "json"),
        *("--db", f"sqlite:///{nightly.folder}/history.sqlite"),
    )
    assert len(json.loads(queried.stdout)) == 6
    page = (nightly.folder / "night" / "report.html").read_text()
    assert "Night 2" in page
    assert "script, time per item" in page
    trends = json.loads(re.search(r'"trends":(\{.*?\]\]\})', page)[1])
    assert {len(points) for points in trends.values()} == {2}


def test_folders_of_torchbench_have_part_in_a_night(nightly):
    folder = ROOT / "tests" / "data" / "torchbench" / "guide_mlp"
    done = nightly(
        *("--store", nightly.folder / "store", "--torchbench", folder),
        *("--backend", "test_numpy", "--name", "models/TOY_NONE/.+"),
        *(*TOY_SUITE, *COUNTS),
        CBS_TORCHBENCH_BACKENDS="pt_inductor:eager",
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    page = (nightly.folder / "night" / "report.html").read_text()
    assert all(name in page for name in ("TOY_NONE", "guide_mlp_EVAL_PT", "guide_mlp_TRAIN_PT"))


def test_a_wrong_output_turns_the_exit_code_and_its_result_is_published(nightly):
    wrong = ("--backend", "test_numpy", "--name", "models/TOY_(NONE|NAN)/.+")
    done = nightly("--store", nightly.folder / "store", *wrong, *TOY_SUITE, *COUNTS, NIGHT="1")
    assert done.returncode == 2, done.stderr[-3000:]
    assert "nightly: run: a wrong output, or a regression" in done.stderr
    assert "nights/1/host-cpu.json" in _published(nightly.folder)


def test_a_night_that_can_not_run_is_no_good_night(nightly):
    done = nightly("--store", nightly.folder / "store", "--backend", "none", "--name", "x")
    assert done.returncode == 1
    assert "no backend 'none'" in done.stderr
    assert not (nightly.folder / "store").exists()


@pytest.mark.parametrize(("cases", "code"), [("NONE", 0), ("(NONE|NAN)", 2)])
def test_the_matrix_of_a_night_is_kept_and_published(tmp_path, environment, cases, code):
    variables = {"CBS_VENV": sys.prefix, "CBS_STORE": str(tmp_path / "store"), "NIGHT": "1"}
    done = _run(
        *(SCRIPTS / "nightly_parity.sh", tmp_path / "parity", "-name", f"models/TOY_{cases}/.+"),
        *("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy"),
        environment={**environment, **variables},
    )
    assert done.returncode == code, done.stdout + done.stderr
    published = (tmp_path / "store" / "nights" / "1" / "parity.txt").read_text()
    assert published == (tmp_path / "parity" / "parity.txt").read_text()
    assert ("wrong_output" in published) == bool(code)
    assert json.loads((tmp_path / "parity" / "parity.json").read_text())


def test_results_that_are_not_there_are_missing(tmp_path, environment):
    variables = {**environment, "CBS_VENV": sys.prefix}
    command = (SCRIPTS / "nightly_publish.sh", tmp_path / "store", tmp_path / "work")
    for missing in ((), (tmp_path / "*.json",)):
        done = _run(*command, *missing, environment=variables)
        assert done.returncode == 3
        assert "no results file" in done.stderr


PR_MODEL = """
import time

from cbs_test_plugin.model import ToyModel


class Model(ToyModel):
    def forward(self, x):
        until = time.perf_counter() + {delay_ms} / 1e3
        while time.perf_counter() < until:
            pass
        return super().forward(x)


def create_model(**parameters):
    parameters.pop("fault")
    return Model(**parameters)
"""
PR_SUITE = """
import attrs
from cbs_test_plugin import suite
from openxla.benchmark import def_types

toy = suite.MODELS[0]
MODEL = attrs.evolve(
    toy,
    name="TOY_OF_A_REQUEST",
    model_impl=attrs.evolve(toy.model_impl, name="TOY_OF_A_REQUEST", module_path="pr_model"),
)
ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(model=MODEL, input_data=suite.ALL_BENCHMARKS[0].input_data)
]
"""


@pytest.fixture
def proposal(tmp_path):
    """A repository of the suite whose last commit makes a model three times as slow."""
    folder = tmp_path / "suite"
    for name in ("comparative_benchmark", "common_benchmark_suite", "scripts"):
        skipped = shutil.ignore_patterns("__pycache__", "static", "templates")
        shutil.copytree(ROOT / name, folder / name, ignore=skipped)
    for name in ("pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    (folder / "pr_suite.py").write_text(PR_SUITE)
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def commit(delay_ms):
        (folder / "pr_model.py").write_text(PR_MODEL.format(delay_ms=delay_ms))
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        for arguments in (("add", "."), ("commit", "--quiet", "--message", f"{delay_ms} ms")):
            done = _run("git", *who, *arguments, cwd=folder, environment=nobody)
            assert done.returncode == 0, done.stderr

    _run("git", "init", "--quiet", "--initial-branch", "main", cwd=folder, environment=nobody)
    commit(2)
    commit(6)
    return folder


def _race(proposal, environment, **variables):
    path = python_path(proposal, proposal / "common_benchmark_suite")
    return _run(
        *(proposal / "scripts" / "pr_benchmark.sh", proposal.parent / "out"),
        environment={
            **environment,
            "PYTHONPATH": path,
            "CBS_VENV": sys.prefix,
            "BASE_SHA": "main~1",
            "CBS_RUN_OPTIONS": "--suite pr_suite --precision 0.5",
            **variables,
        },
        cwd=proposal,
    )


@pytest.mark.alone
def test_base_and_head_race_with_their_own_code(proposal, environment):
    body = "Makes it better.\n\nRUN_BENCHMARK: TOY_OF_A test_numpy\n"
    done = _race(proposal, environment, PR_BODY=body)
    # An unclear result on a busy machine is not a regression; the times show whose code it was.
    table = (proposal.parent / "out" / "table.md").read_text()
    assert table.startswith("### Benchmark: models/TOY_OF_A.*/.+DEFAULT (test_numpy, host-cpu)")
    [row] = [line for line in table.splitlines() if "test_numpy:direct@head" in line]
    cells = [cell.strip() for cell in row.split("|")]
    assert done.returncode == (2 if "slower" in cells else 0), done.stdout + done.stderr
    assert {"slower", "unclear", "unclear (disturbed)"} & set(cells)
    results = json.loads((proposal.parent / "out" / "results.json").read_text())
    base, head = (r["metrics"]["framework_level"] for r in results["benchmarks"])
    assert 2 <= base["min_latency_ms"] < 6 <= head["min_latency_ms"]
    assert base["race"]["id"] == head["race"]["id"]
    assert _run("git", "status", "--porcelain", cwd=proposal).stdout == ""


def test_a_script_races_in_the_environments_of_both_sides(proposal, environment, tmp_path):
    bench_support.write(tmp_path / "script")
    script = bench_support.configured(tmp_path / "bench.yaml", script=[])
    done = _race(
        proposal,
        {**environment, ROOT_DIR_VARIABLE: str(tmp_path / "root")},
        PR_BODY="RUN_BENCHMARK: bench/script test_numpy",
        CBS_RUN_OPTIONS="",
        CBS_BENCH=str(script),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = (proposal.parent / "out" / "table.md").read_text()
    assert "milabench:script@head" in table
    results = json.loads((proposal.parent / "out" / "results.json").read_text())
    told = [result["definition"]["environment"]["name"] for result in results["benchmarks"]]
    assert told == ["base", "head"]


USERBENCHMARK = """
from userbenchmark.utils import dump_output, get_output_json

def run(args):
    assert args == ["--flag"], args
    dump_output("of-mine", get_output_json("of-mine", {{"time_ms": {time_ms}, "same": 1.0}}))
"""


def test_a_userbenchmark_of_the_repository_runs_as_each_side_has_it(proposal, environment):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    folder = proposal / "userbenchmark" / "of-mine"
    folder.mkdir(parents=True)
    for time_ms in (2, 6):
        (folder / "__init__.py").write_text(USERBENCHMARK.format(time_ms=float(time_ms)))
        for arguments in (("add", "."), ("commit", "--quiet", "--message", f"{time_ms}")):
            done = _run("git", *who, *arguments, cwd=proposal)
            assert done.returncode == 0, done.stderr
    done = _race(
        proposal,
        environment,
        PR_BODY="RUN_TORCHBENCH: of-mine test_numpy",
        CBS_RUN_OPTIONS="--flag",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    table = (proposal.parent / "out" / "table.md").read_text()
    assert re.match(r"### Userbenchmark: of-mine, \w+ against \w+\n\n\| metric", table)
    assert "| time_ms | 2 | 6 | +200.0% | +200.0% to +200.0% | worse |" in table
    assert "| same | 1 | 1 | +0.0% | +0.0% to +0.0% | same |" in table
    assert "6 runs per side." in table
    # If the base lacks it, nothing can be compared.
    lone = _race(
        proposal, environment, PR_BODY="RUN_BENCHMARK: of-mine test_numpy", BASE_SHA="main~2"
    )
    assert lone.returncode == 3
    assert "the base has no userbenchmark of-mine" in lone.stderr


def test_a_userbenchmark_of_torchbench_is_the_same_on_both_sides(proposal, environment, tmp_path):
    folder = tmp_path / "benchmark" / "userbenchmark" / "of-mine"
    folder.mkdir(parents=True)
    (folder / "run.py").write_text(USERBENCHMARK.format(time_ms=2.0))
    done = _race(
        proposal,
        environment,
        PR_BODY="RUN_TORCHBENCH: of-mine test_numpy",
        CBS_RUN_OPTIONS="--flag",
        CBS_TORCHBENCH=str(tmp_path / "benchmark"),
        CBS_USERBENCHMARK_RUNS="2",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = (proposal.parent / "out" / "table.md").read_text()
    assert "| time_ms | 2 | 2 |" in table
    assert "2 runs per side. Detecting a change requires 6 runs per side." in table


@pytest.mark.parametrize(
    ("variables", "code", "message"),
    [
        ({"PR_BODY": "RUN_TORCHBENCH: no_such"}, 1, "no userbenchmark or model 'no_such'"),
        ({"PR_BODY": "nothing"}, 3, "has no RUN_BENCHMARK"),
        ({"PR_BODY": "RUN_BENCHMARK: $(id)"}, 1, "write RUN_BENCHMARK: NAME"),
        ({"PR_BODY": "RUN_BENCHMARK: X", "BASE_SHA": "gone"}, 1, "no commit gone in this checkout"),
        ({"PR_BODY": "RUN_BENCHMARK: NO_SUCH test_numpy"}, 1, "NO_SUCH"),
        ({"PR_BODY": "RUN_BENCHMARK: TOY none"}, 1, "no backend 'none'"),
        ({"PR_BODY": "RUN_BENCHMARK: torchbench/A"}, 1, "the folders that torchbench/NAME selects"),
        ({"PR_BODY": "RUN_BENCHMARK: bench/A"}, 1, "configuration that contains bench/NAME"),
    ],
)
def test_a_request_that_can_not_be_is_reported(proposal, environment, variables, code, message):
    done = _race(proposal, environment, **variables)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stderr
    assert not (proposal.parent / "out" / "table.md").exists()


def test_a_table_of_something_else_is_refused(tmp_path):
    done = _python("race_table.py", tmp_path / "none.json", "base", "head")
    assert done.returncode == 1
    assert "does not exist" in done.stderr
    assert _python("race_table.py").returncode == 1


def test_the_table_of_a_race_has_a_row_for_each_case_of_both_environments(tmp_path):
    def side(name, scale=1.0, **changes):
        # Exit code 2 needs six processes.
        level = metrics(scale, seed=int(scale), processes=6) if "status" not in changes else {}
        environment = {"name": name, "python": ""}
        return record("w1", environment=environment, metrics=level, **changes)

    results = tmp_path / "results.json"
    for sides, code, text in (
        ((side("base"), side("head", scale=1.5)), 2, "| jax_xla:xla@head (jax) |"),
        ((side("base"), side("head", status="wrong_output")), 2, "wrong_output"),
        ((side("base"), side("other")), 3, "ran only in base"),
        ((record("w1"),), 3, "No case ran in both base and head"),
    ):
        results.write_text(json.dumps(document(*sides)))
        done = _python("race_table.py", results, "base", "head", "### Race")
        assert done.returncode == code, done.stdout + done.stderr
        assert text in done.stdout + done.stderr
        assert done.stdout.startswith("### Race") == ("only" not in text)
