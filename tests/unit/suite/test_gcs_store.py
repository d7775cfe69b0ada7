"""google-cloud-storage against an emulator on loopback, preconditions and faults included."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter

import attrs
import pytest
from artifact_support import content, make_model

pytest.importorskip("google.cloud.storage", reason="needs the extra gcs")
pytest.importorskip("gcp_storage_emulator", reason="needs the extra dev")

from gcs_emulator import BUCKET, ProxyFault, gcs_emulator

from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.publish import (
    Action,
    ConflictError,
    PublishError,
    PublishOptions,
    digested,
    publish,
)
from openxla.benchmark.artifacts.published_models import FetchError, FetchOptions, Source, fetch
from openxla.benchmark.artifacts.stores import (
    AlreadyExistsError,
    NotFoundError,
    Stores,
    TransferOptions,
)

pytestmark = pytest.mark.slow

# The largest takes the resumable way, in three pieces.
FILES = {"model.mlir": content(17 << 20, 1), "inputs/input 0+ä.npy": content(7000, 2), "empty": b""}
URL = f"gs://{BUCKET}/jax/v1/MODEL"
OPTIONS = PublishOptions(deadline_s=60, read_timeout_s=20)
FETCH = FetchOptions(deadline_s=60, read_timeout_s=20, backoff_s=0.01)


TOTAL: Counter[str] = Counter()


@pytest.fixture
def proxy(monkeypatch):
    with gcs_emulator() as running:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", running.url)
        yield running
        TOTAL.update(running.injected)
        TOTAL["412"] += running.answers[412]


@pytest.fixture
def made(tmp_path):
    return make_model(tmp_path / "made", FILES)


def store(url=URL, seconds=60.0):
    return Stores(TransferOptions(deadline_s=seconds)).at(url)


def local(path):
    return digested(path)


def names(url=URL):
    return list(store(url).sizes())


def test_what_was_published_is_fetched(proxy, made, tmp_path):
    report = publish(made, URL, OPTIONS)
    assert {file.action for file in report.files} == {Action.UPLOADED}
    assert report.url == URL
    assert names() == sorted([*FILES, "claim.json", "manifest.json"])
    assert names(f"gs://{BUCKET}/jax")[0] == "v1/MODEL/claim.json"
    assert sum("uploadType=resumable" in line for line in proxy.requests) >= 3
    (model,) = fetch([Source.locked(report.lock)], cache=Cache(tmp_path / "c"), options=FETCH)
    assert {name: path.read_bytes() for name, path in model.files.items()} == FILES
    with pytest.raises(NotFoundError, match="MODEL/nothing: no such object"):
        store().check("nothing", local(made / "empty"))
    with pytest.raises(NotFoundError):
        store().open("nothing")
    assert store().sizes("model")["model.mlir"] == 17 << 20


def test_publishing_again_is_answered_with_412_and_is_fine(proxy, made):
    publish(made, URL, OPTIONS)
    proxy.answers.clear()
    report = publish(made, URL, OPTIONS)
    assert {file.action for file in report.files} == {Action.PRESENT}
    assert proxy.answers[412] == len(FILES) + 2
    dry = publish(made, URL, attrs.evolve(OPTIONS, dry_run=True))
    assert {file.action for file in dry.files} == {Action.PRESENT}


def test_an_object_is_written_once_by_the_precondition_of_the_store(proxy, made):
    small, large = local(made / "inputs/input 0+ä.npy"), local(made / "model.mlir")
    for first, second in ((small, large), (large, small)):
        name = f"x-{first.size_bytes}"
        store().put(name, first, lambda _: None)
        with pytest.raises(AlreadyExistsError, match=f"{name} already exists"):
            store().put(name, second, lambda _: None)
        store().check(name, first)


def test_other_content_is_refused_and_what_is_there_stays(proxy, made, tmp_path):
    publish(made, URL, OPTIONS)
    other = make_model(tmp_path / "other", {**FILES, "empty": b"not empty"})
    with pytest.raises(ConflictError, match="another publication"):
        publish(other, URL, OPTIONS)
    assert store().sizes()["empty"] == 0


def test_somebody_may_be_first_between_the_pieces_of_an_upload(proxy, made):
    """The proxy answers 412 when the last piece comes, as the service does."""
    target, rival = store(), store()
    large, small = local(made / "model.mlir"), local(made / "inputs/input 0+ä.npy")
    sent = []

    def advance(count):
        if not sent:
            rival.put("x", small, lambda _: None)
        sent.append(count)

    with pytest.raises(AlreadyExistsError):
        target.put("x", large, advance)
    rival.check("x", small)


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("POST .*uploadType=multipart", ProxyFault(503)),
        ("POST .*uploadType=resumable", ProxyFault(429)),
        ("PUT .*upload_id", ProxyFault(500)),
        ("PUT .*upload_id", ProxyFault(None)),
        ("GET /storage", ProxyFault(502)),
    ],
    ids=["small", "begin", "piece", "cut", "confirm"],
)
def test_a_service_in_trouble_is_asked_again(proxy, made, pattern, fault):
    proxy.inject(pattern, fault)
    publish(made, URL, OPTIONS)
    assert proxy.injected.total() == 1
    for name in FILES:
        store().check(name, local(made / name))


def test_an_answer_that_got_lost_is_no_conflict(proxy, made):
    # Written, but the client does not know; its second attempt is answered with 412.
    proxy.inject("POST .*uploadType=multipart", ProxyFault(503, after=True))
    report = publish(made, URL, OPTIONS)
    assert proxy.injected.total() == 1
    assert proxy.answers[412] == 1
    assert report.files[-1].action is Action.UPLOADED


@pytest.mark.parametrize(
    ("status", "match"), [(401, "no valid credentials"), (403, "access denied")]
)
def test_no_permission_is_said_at_once(proxy, made, status, match):
    proxy.inject("POST", ProxyFault(status))
    with pytest.raises(Exception, match=rf"claim\.json: {match}.*gcloud auth application"):
        publish(made, URL, OPTIONS)
    assert sum(line.startswith("POST") for line in proxy.requests) == 1
    assert names() == []


def test_a_service_that_stays_in_trouble_is_left_at_the_deadline(proxy, made):
    proxy.inject("POST", *[ProxyFault(503)] * 100)
    with pytest.raises(PublishError, match=r"claim\.json: .* HTTP 503 and the retries timed out"):
        publish(made, URL, attrs.evolve(OPTIONS, deadline_s=2.5))


@pytest.mark.parametrize("pattern", ["POST", "PUT", "GET /storage"])
def test_a_service_that_hangs_is_left_at_the_deadline(proxy, made, pattern):
    proxy.inject(pattern, *[ProxyFault(hang_s=60)] * 100)
    started = time.monotonic()
    with pytest.raises(PublishError, match=r"run the same command again"):
        publish(made, URL, attrs.evolve(OPTIONS, deadline_s=1.5, read_timeout_s=0.7))
    assert time.monotonic() - started < 6
    proxy.faults.clear()
    assert "manifest.json" not in names()


def test_killed_between_two_pieces_of_an_upload(proxy, made):
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from openxla.benchmark.artifacts import stores\n"
        "from openxla.benchmark.artifacts.publish import PublishOptions, publish\n"
        "stores._INTERVAL_S = 0.0\n"
        "def end(at):\n"
        "    if at.done_bytes > 10_000_000: os.kill(os.getpid(), signal.SIGKILL)\n"
        "publish(Path(sys.argv[1]), sys.argv[2], PublishOptions(on_progress=end))\n"
    )
    command = [sys.executable, "-c", program, str(made), URL]
    assert subprocess.run(command, timeout=50, check=False).returncode == -signal.SIGKILL
    assert "model.mlir" not in names()
    assert "manifest.json" not in names()
    publish(made, URL, OPTIONS)
    for name in (*FILES, "manifest.json"):
        store().check(name, local(made / name))


@pytest.mark.parametrize("fault", [ProxyFault(503), ProxyFault(429), ProxyFault(None)])
def test_reads_are_repeated(proxy, made, tmp_path, fault):
    publish(made, URL, OPTIONS)
    proxy.inject("GET /download", fault, fault)
    (model,) = fetch([Source(url=URL)], cache=Cache(tmp_path / "c"), options=FETCH)
    assert {name: path.read_bytes() for name, path in model.files.items()} == FILES
    assert proxy.injected.total() == 2


def test_a_half_published_model_is_not_there(proxy, made, tmp_path):
    proxy.inject("POST .*uploadType=resumable", ProxyFault(403))
    with pytest.raises(PublishError, match="nothing is visible yet"):
        publish(made, URL, OPTIONS)
    with pytest.raises(FetchError, match=r"manifest\.json: no such object"):
        fetch([Source(url=URL)], cache=Cache(tmp_path / "c"), options=FETCH)
    publish(made, URL, OPTIONS)
    assert fetch([Source(url=URL)], cache=Cache(tmp_path / "c"), options=FETCH)


def test_two_processes_publish_different_things_and_one_wins(proxy, made, tmp_path):
    other = make_model(tmp_path / "other", {**FILES, "empty": b"not empty"})
    program = (
        "import sys; from pathlib import Path\n"
        "from openxla.benchmark.artifacts.publish import ConflictError, publish\n"
        "try:\n    publish(Path(sys.argv[1]), sys.argv[2]); print('published')\n"
        "except ConflictError:\n    print('conflict')\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(directory), URL],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )
        for directory in (made, other)
    ]
    outputs = [process.communicate(timeout=50)[0].strip() for process in processes]
    assert sorted(outputs) == ["conflict", "published"]
    winner = (made, other)[outputs.index("published")]
    for name in (*FILES, "manifest.json"):
        store().check(name, local(winner / name))


def test_without_the_library_the_message_names_a_remedy(run_python):
    done = run_python(
        "import sys\n"
        "sys.modules['google.cloud.storage'] = sys.modules['google.cloud'] = None\n"
        "from openxla.benchmark.artifacts.stores import Stores\n"
        "assert not any(name.startswith('google') for name in sys.modules if sys.modules[name])\n"
        "Stores().at('gs://bucket/x')\n"
    )
    assert done.returncode == 1
    assert "pip install -e '.[gcs]'" in done.stderr


def test_without_credentials_reads_are_anonymous(monkeypatch, tmp_path):
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    from openxla.benchmark.artifacts import remote_stores

    assert type(remote_stores._credentials(anonymous=False)).__name__ == "AnonymousCredentials"


def test_zz_count(capsys):
    """Comes last in this file; each test has compared what is in the bucket."""
    if not TOTAL["412"]:
        pytest.skip("counts what the other tests of this file have injected")
    with capsys.disabled():
        print(
            f"\nfaults injected before the bucket: {TOTAL.total()} ({dict(sorted(TOTAL.items()))})"
        )
