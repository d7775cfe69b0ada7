"""Runs on published artifacts: fetched, verified, named in the results, or refused by name."""

import json
import subprocess
import sys

import pytest
from artifacts_command_support import publication, serve
from fault_server import Fault, fault_server
from msgspec.structs import replace
from tests_support import Run, cbs_command, python_path, run_cbs

from openxla.benchmark.artifacts import manifests, workload_store
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.installation import LOCKS_DIR_VARIABLE, ROOT_DIR_VARIABLE
from openxla.benchmark.workloads import workload_of

MODEL = "TOY_NONE"
TOYS = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy", "-w", "1", "-iter", "3")
WITH_WORKERS = (*TOYS, "-name", f"models/{MODEL}/.+")
# The parent fetches, so most tests need no worker.
ONE = (*WITH_WORKERS, "--run-in-process")
# Injected faults, and runs that accepted a wrong file.
COUNTS = {"faults": 0, "wrong": 0}


@pytest.fixture(scope="module", autouse=True)
def _print_counts():
    yield
    print(f"\n{COUNTS['faults']} faults in runs on fetched artifacts, {COUNTS['wrong']} taken")
    assert COUNTS["wrong"] == 0


@pytest.fixture
def case():
    (found,) = catalog.select(
        catalog.all_benchmarks(["cbs_test_plugin.suite"]), name=f"models/{MODEL}/.+"
    )
    return found


@pytest.fixture
def server():
    with fault_server() as running:
        yield running


class Machine:
    """A fresh artifact root, and lock files that it reads."""

    def __init__(self, directory, environment, locks):
        self.root, self.directory = directory / "root", directory / "work"
        self.directory.mkdir(parents=True)
        self.environment = {
            **environment,
            ROOT_DIR_VARIABLE: str(self.root),
            LOCKS_DIR_VARIABLE: str(locks),
        }

    def run(self, *arguments) -> Run:
        found = run_cbs(*arguments, directory=self.directory, environment=self.environment)
        assert "Traceback" not in found.err, found.err
        return found


@pytest.fixture
def locks(tmp_path):
    return tmp_path / "locks"


@pytest.fixture
def machine(tmp_path, environment, locks):
    return Machine(tmp_path / "machine", environment, locks)


@pytest.fixture(scope="module")
def maker(tmp_path_factory, environment):
    """A machine that has made the artifacts of the toy."""
    directory = tmp_path_factory.mktemp("maker")
    found = Machine(directory / "machine", environment, directory / "no-locks")
    assert found.run(*ONE).code == 0
    return found


@pytest.fixture
def publish(tmp_path, maker, case, server, monkeypatch):
    """Publishes what another machine has made, with a change to its workload; returns the lock."""

    def make(change=None):
        with monkeypatch.context() as there:
            there.setenv(ROOT_DIR_VARIABLE, str(maker.root))
            return serve(server, publication(case, tmp_path / "publication", change))

    return make


@pytest.fixture
def lock(publish, locks):
    """The artifacts of the toy, published and locked."""
    found = publish()
    manifests.update_lock_file(locks / "toys.json", {MODEL: found})
    return found


def record_of(run):
    *_, record = run.document["benchmarks"]
    return record, record["metrics"]["framework_level"]


def refused(run, *said):
    """Asserts that a run ended without a result, and why."""
    COUNTS["faults"] += 1
    record, metrics = record_of(run)
    COUNTS["wrong"] += record["status"] == "ok"
    assert run.code == 1
    assert (record["status"], record["phase"]) == ("failed", "artifacts")
    assert "latencies_ms" not in metrics
    for text in said:
        assert text in record["reason"]
    assert "\n" not in record["reason"]


def test_a_run_takes_what_is_locked_and_says_exactly_what(machine, server, lock):
    run = machine.run(*WITH_WORKERS)
    _, metrics = record_of(run)
    assert run.code == 0, run.err
    assert "published artifacts for 1 model" in run.err
    assert "inputs and truth for" not in run.err
    assert metrics["final_verification"]["passed"]
    source = {"model": MODEL, "url": lock.url, "manifest_sha256": lock.manifest_sha256}
    assert metrics["artifact_source"] == source
    assert metrics["program_source"] is None
    fetched = json.loads(server.objects[f"/{MODEL}/manifest.json"])["files"]
    digests = {file["path"].split("/", 2)[-1]: file["sha256"] for file in fetched}
    for name, digest in metrics["artifact_digests"].items():
        assert digests[name] == digest
    # The checkpoint came, too.
    (manifest,) = machine.root.glob("checkpoints/*/manifest.json")
    assert digests["manifest.json"]
    assert manifest.is_file()


def test_what_is_there_is_not_fetched_again(machine, server, lock):
    machine.run(*ONE)
    server.requests.clear()
    again = machine.run(*ONE)
    assert again.code == 0
    assert server.requests == []
    assert "preparing" not in again.err
    assert record_of(again)[1]["artifact_source"]["url"] == lock.url


def test_nothing_that_was_fetched_is_computed_again(machine, publish, locks):
    def other_source(document):
        document["producer"]["source_sha256"] = "f" * 64

    manifests.update_lock_file(locks / "toys.json", {MODEL: publish(other_source)})
    for run in (machine.run(*ONE), machine.run(*ONE)):
        assert run.code == 0
        assert "inputs and truth for" not in run.err


def test_without_a_lock_all_is_made_here(machine, server, publish):
    publish()
    server.requests.clear()
    run = machine.run(*ONE)
    assert run.code == 0
    assert "inputs and truth for" in run.err
    assert server.requests == []
    assert record_of(run)[1]["artifact_source"] is None


def test_generated_artifacts_do_not_come_from_a_lock(machine, server, lock):
    server.requests.clear()
    run = machine.run(*ONE, "--generate-artifacts")
    assert run.code == 0
    assert server.requests == []
    assert record_of(run)[1]["artifact_source"] is None
    # Locked artifacts have precedence over those made here.
    assert record_of(machine.run(*ONE))[1]["artifact_source"]["url"] == lock.url


def test_a_truth_serves_models_that_are_not_locked(machine, lock):
    run = machine.run(*TOYS, "-name", "models/TOY_(NONE|FLOODS)/.+")
    assert run.code == 0
    assert "inputs and truth for" not in run.err
    for record in run.document["benchmarks"]:
        assert record["metrics"]["framework_level"]["artifact_source"]["model"] == MODEL


def test_without_download_the_cache_serves(machine, server, lock):
    machine.run(*ONE)
    for kind in ("workloads", "checkpoints"):
        (folder,) = machine.root.glob(f"{kind}/[!.]*")
        folder.rename(machine.root / f"old-{kind}")
    server.requests.clear()
    run = machine.run(*ONE, "--no-download")
    assert run.code == 0, run.err
    assert server.requests == []
    assert record_of(run)[1]["artifact_source"]["manifest_sha256"] == lock.manifest_sha256


def test_without_download_and_without_a_cache_nothing_is_asked_for(machine, server, lock):
    server.requests.clear()
    refused(machine.run(*ONE, "--no-download"), "--no-download", "--generate-artifacts")
    assert server.requests == []


def test_a_damaged_copy_is_taken_again_from_what_is_locked(machine, lock):
    machine.run(*ONE)
    (truth,) = machine.root.glob("workloads/*/truth/output_0.npy")
    truth.chmod(0o644)
    data = bytearray(truth.read_bytes())
    data[-1] ^= 1
    truth.write_bytes(data)
    run = machine.run(*ONE)
    COUNTS["faults"] += 1
    assert run.code == 0, run.err
    assert record_of(run)[1]["artifact_source"]["url"] == lock.url


def test_another_workload_is_refused_by_name(machine, publish, locks, case):
    def other_workload(document):
        document["workload"]["digest"] = "ab" * 32

    found = publish(other_workload)
    manifests.update_lock_file(locks / "toys.json", {MODEL: found})
    refused(machine.run(*ONE), MODEL, found.url, "abababababab", workload_of(case).id)


def test_a_refusal_holds_for_all_that_would_be_compared(machine, publish, locks):
    def other_workload(document):
        document["workload"]["digest"] = "ab" * 32

    manifests.update_lock_file(locks / "toys.json", {MODEL: publish(other_workload)})
    run = machine.run(*TOYS, "-name", "models/TOY_(NONE|FLOODS)/.+")
    assert set(run.statuses.values()) == {"failed"}
    assert "inputs and truth for" not in run.err


def test_artifacts_that_are_gone_are_named(machine, server, lock):
    server.always[f"/{MODEL}/manifest.json"] = Fault(kind="404", status=404)
    refused(machine.run(*ONE), lock.url, "--no-download", "--generate-artifacts")


def test_another_file_than_the_locked_one_is_refused(machine, server, lock):
    (path,) = (name for name in server.objects if name.endswith("/truth/output_0.npy"))
    data = bytearray(server.objects[path])
    data[-1] ^= 1
    server.objects[path] = bytes(data)
    refused(machine.run(*ONE), path, "sha256", "lock another version")
    assert not list(machine.root.glob("workloads/[!.]*"))


def test_no_network_is_one_sentence_with_the_way_out(machine, lock, locks):
    with fault_server() as closed:
        url = f"{closed.url}/{MODEL}"
    manifests.update_lock_file(locks / "toys.json", {MODEL: replace(lock, url=url)})
    refused(machine.run(*ONE), url, "gave up after 3 attempts", "--generate-artifacts")


def test_a_full_disk_is_told_before_anything_is_begun(machine, server, lock, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import collections, shutil\n"
        "Usage = collections.namedtuple('Usage', 'total used free')\n"
        "shutil.disk_usage = lambda _: Usage(1 << 40, (1 << 40) - 1000, 1000)\n"
    )
    machine.environment["PYTHONPATH"] = python_path(tmp_path / "site")
    refused(machine.run(*ONE), "1000 bytes available", "free some space")
    assert not any(path.endswith(".npy") for path, _ in server.requests)


def test_a_lock_of_another_model_is_reported(machine, lock, locks):
    manifests.update_lock_file(locks / "toys.json", {"TOY_FLOODS": lock})
    run = machine.run(*TOYS, "-name", "models/TOY_FLOODS/.+")
    refused(run, f"the locked URL is for {MODEL}: lock ")


def test_a_damaged_lock_file_ends_the_run_before_it_begins(machine, lock, locks):
    (locks / "toys.json").write_text((locks / "toys.json").read_text().replace("sha256", "md5"))
    COUNTS["faults"] += 1
    run = machine.run(*ONE)
    assert run.code == 1
    assert not run.output.exists()
    assert "toys.json" in run.err
    assert len(run.err.splitlines()) == 1


def test_two_runs_at_once_fetch_each_object_once(machine, server, lock):
    server.requests.clear()
    processes = [
        subprocess.Popen(
            cbs_command(*WITH_WORKERS, output=machine.directory / f"{index}.json"),
            env=machine.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    told = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    paths = [path for path, _ in server.requests]
    assert len(paths) == len(set(paths))
    for index in range(2):
        document = json.loads((machine.directory / f"{index}.json").read_text())
        (record,) = document["benchmarks"]
        metrics = record["metrics"]["framework_level"]
        assert metrics["artifact_source"]["manifest_sha256"] == lock.manifest_sha256


def test_a_user_s_own_inputs_are_not_published(machine, lock, tmp_path, case):
    machine.run(*ONE)
    (found,) = machine.root.glob("workloads/*/inputs/input_0.npy")
    own = tmp_path / "own"
    own.mkdir()
    program = (
        "import numpy as np, sys; np.save(sys.argv[2], np.load(sys.argv[1])[::-1].copy(), "
        "allow_pickle=False)"
    )
    subprocess.run([sys.executable, "-c", program, found, own / "input_0.npy"], check=True)
    run = machine.run(*ONE, "--inputs", str(own))
    assert run.code == 0, run.err
    assert record_of(run)[1]["artifact_source"] is None


def test_a_backend_without_published_programs_runs_as_ever(machine, lock):
    run = machine.run(*ONE, "--exported-programs")
    assert run.code == 0
    assert record_of(run)[1]["program_source"] is None


def test_a_published_workload_is_found_in_process(machine, lock, case, monkeypatch):
    run = machine.run(*ONE)
    assert run.code == 0, run.err
    monkeypatch.setenv(ROOT_DIR_VARIABLE, str(machine.root))
    found = workload_store.find(workload_of(case), locked={lock.manifest_sha256})
    assert found is not None
    assert found.origin["url"] == lock.url


NAMED = """
import attrs
from cbs_test_plugin import suite
from openxla.benchmark import def_types

ALL_BENCHMARKS = [
    attrs.evolve(case, model=attrs.evolve(case.model, artifacts_dir_url={urls!r}[case.model.name]))
    for case in suite.ALL_BENCHMARKS if case.model.name in {urls!r}
]
"""


@pytest.fixture
def named(machine, tmp_path):
    """Runs models whose definitions name these URLs."""

    def run(urls, *arguments):
        (tmp_path / "suite").mkdir(exist_ok=True)
        (tmp_path / "suite" / "named_suite.py").write_text(NAMED.format(urls=urls))
        machine.environment["PYTHONPATH"] = python_path(tmp_path / "suite")
        names = "|".join(urls)
        return machine.run(
            *("--suite", "named_suite", "-name", f"models/({names})/.+", "--backend"),
            *("test_numpy", "-w", "1", "-iter", "3", "--run-in-process", *arguments),
        )

    return run


def test_what_a_definition_names_is_used_and_asked_for_once(machine, server, publish, named):
    url = publish().url
    run = named({MODEL: f"{url}/"})
    assert run.code == 0, run.err
    assert "inputs and truth for" not in run.err
    assert record_of(run)[1]["artifact_source"]["url"] == url
    # Also if other content is published there later: the measurement used these bytes.
    server.put(f"{MODEL}/manifest.json", b"{}")
    server.requests.clear()
    again = named({MODEL: url})
    assert record_of(again)[1]["artifact_source"] == record_of(run)[1]["artifact_source"]
    assert named({MODEL: url}, "--no-download").code == 0
    assert server.requests == []
    # Until it is removed here.
    done = subprocess.run(
        [sys.executable, "-m", "comparative_benchmark", "artifacts", "rm", MODEL],
        env=machine.environment,
        check=False,
    )
    assert done.returncode == 0
    refused(named({MODEL: url}), f"{url}/manifest.json", "manifest_version", "artifacts_dir_url")


def test_a_url_that_leads_nowhere_is_refused_in_a_line(named):
    with fault_server() as closed:
        dead = closed.url
    other = "TOY_FLOODS"
    run = named({MODEL: f"{dead}/{MODEL}", other: f"{dead}/{other}"})
    assert set(run.statuses.values()) == {"failed"}
    assert "inputs and truth for" not in run.err
    refused(run, f"{dead}/{other}", "gave up after 3 attempts", "--generate-artifacts")
    # All of them learn of the requested one.
    reasons = [record["reason"] for record in run.document["benchmarks"]]
    assert all(f"{dead}/{other}/manifest.json" in reason for reason in reasons) or all(
        f"{dead}/{MODEL}/manifest.json" in reason for reason in reasons
    )
    made = named({MODEL: f"{dead}/{MODEL}"}, "--generate-artifacts")
    assert made.code == 0
    # Local artifacts are used only on the user's request.
    refused(named({MODEL: f"{dead}/{MODEL}"}), "use local artifacts with --no-download")
    assert named({MODEL: f"{dead}/{MODEL}"}, "--no-download").code == 0


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no/such/folder", "a manifest.json with the digest of each file"),
        (MODEL, "the manifest is for the model TOY_NONE"),
        ("../%", "HTTP 404"),
        ("a b", "contains spaces"),
        ("x?y=1", "cannot have a query"),
    ],
)
def test_a_url_of_something_else_costs_its_own_model(server, publish, named, place, words):
    right = publish().url
    other = "TOY_FLOODS"
    run = named({MODEL: right, other: f"{server.url}/{place}"})
    found = {record["definition"]["model"]: record for record in run.document["benchmarks"]}
    assert found[MODEL]["status"] == "ok", run.err
    assert found[other]["status"] == "failed"
    assert words in found[other]["reason"]
    assert "\n" not in found[other]["reason"]


def test_a_lock_file_comes_before_a_url(server, lock, named):
    server.requests.clear()
    run = named({MODEL: f"{server.url}/elsewhere"})
    assert record_of(run)[1]["artifact_source"]["url"] == lock.url
    assert not any("elsewhere" in path for path, _ in server.requests)


def test_a_url_may_be_a_directory(publish, named, tmp_path):
    publish()
    run = named({MODEL: str(tmp_path / "publication")})
    assert run.code == 0, run.err
    assert record_of(run)[1]["artifact_source"]["url"] == str(tmp_path / "publication")
