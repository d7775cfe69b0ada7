"""Pretrained checkpoints, from a local server that imitates the hub, or without a server."""

import contextlib
import hashlib
import json
import socket
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures import TensorInit

BERT = architectures.get("bert")
REPOSITORY, REVISION = BERT.pretrained["bert-base-uncased"]

FETCH = """
import time
time.sleep = lambda _: None  # the hub library waits between its attempts
from openxla.benchmark.models import architectures, checkpoints
try:
    print(checkpoints.resolve(architectures.get("bert"),
        {"model_name": "bert-base-uncased", "checkpoint": "pretrained"}))
except checkpoints.CheckpointError as error:
    print("CheckpointError:", error)
"""


def hub(files, requests):
    """Returns a request handler that serves one repository at one revision."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    api = f"/api/models/{REPOSITORY}"

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, body, **headers):
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Repo-Commit", REVISION)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_GET(self):
            path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
            requests.append(path)
            if path in (api, f"{api}/revision/main", f"{api}/revision/{REVISION}"):
                siblings = [{"rfilename": name} for name in files]
                facts = {"id": REPOSITORY, "sha": REVISION, "siblings": siblings, "private": False}
                self.answer(json.dumps(facts).encode(), Content_Type="application/json")
            elif path.startswith(f"{api}/tree/{REVISION}"):
                tree = [
                    {"type": "file", "path": name, "size": len(data), "oid": digests[name][:40]}
                    for name, data in files.items()
                ]
                self.answer(json.dumps(tree).encode(), Content_Type="application/json")
            elif path.startswith(f"/{REPOSITORY}/resolve/{REVISION}/"):
                name = path.partition(f"{REVISION}/")[2]
                if name not in files:
                    self.send_error(404)
                    return
                self.answer(
                    files[name],
                    ETag=f'"{digests[name]}"',
                    Content_Type="application/octet-stream",
                    Accept_Ranges="bytes",
                )
            else:
                self.send_error(404)

        do_HEAD = do_GET  # noqa: N815  # the name that the server looks for

    return Hub


@contextlib.contextmanager
def serving(files):
    """Serves files like the hub; yields the address and the requested paths."""
    requests = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), hub(files, requests))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def files(tmp_path):
    path = tmp_path / "weights"
    inits = [TensorInit(name="pooler.dense.bias", shape=(8,), stddev=1.0)]
    checkpoints.write_weights(path, inits, seed=0)
    return {
        "config.json": b'{"model_type": "bert"}\n',
        "model.safetensors": path.read_bytes(),
        "tokenizer.json": b"{}\n",
        "vocab.txt": b"[PAD]\n",
        "pytorch_model.bin": b"a pickle, which nobody needs",
        "README.md": b"# BERT\n",
    }


@pytest.fixture
def fetch(run_python, tmp_path):
    """Asks for the pretrained checkpoint in a fresh process; returns its output."""

    def run(endpoint):
        done = run_python(
            FETCH,
            HF_ENDPOINT=endpoint,
            HF_HOME=str(tmp_path / "hf"),
            HF_HUB_DISABLE_TELEMETRY="1",
            HF_HUB_DISABLE_XET="1",
            HF_HUB_DISABLE_PROGRESS_BARS="1",
            NO_PROXY="127.0.0.1",
            no_proxy="127.0.0.1",
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def closed_port():
    """An address without a listener."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


def target(root):
    return root / "checkpoints" / f"{REPOSITORY.replace('/', '--')}-{REVISION[:16]}"


@pytest.mark.slow
def test_without_a_hub_the_error_says_what_and_what_to_do(fetch, root, closed_port):
    message = fetch(closed_port)
    assert message.startswith("CheckpointError:")
    assert f"{REPOSITORY}@{REVISION}" in message
    assert "HF_ENDPOINT" in message
    assert "seeded" in message
    assert str(target(root)) in message
    assert list((root / "checkpoints").iterdir()) == []


def test_files_put_there_by_hand_are_taken_as_the_error_promises(fetch, root, files, closed_port):
    target(root).mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (target(root) / name).write_bytes(files[name])
    assert fetch(closed_port) == str(target(root))


def test_the_hub_gives_configuration_weights_and_tokenizer(fetch, root, files):
    with serving(files) as (endpoint, requests):
        assert fetch(endpoint) == str(target(root))
    found = {path.name: path.read_bytes() for path in target(root).iterdir()}
    manifest = json.loads(found.pop("manifest.json"))
    wanted = ("config.json", "model.safetensors", "tokenizer.json", "vocab.txt")
    assert found == {name: files[name] for name in wanted}
    assert not [path for path in requests if path.endswith((".bin", ".md"))]
    assert manifest["kind"] == "pretrained"
    assert (manifest["repository"], manifest["revision"]) == (REPOSITORY, REVISION)
    assert set(manifest["files"]) == set(wanted)
    for name, facts in manifest["files"].items():
        assert facts["sha256"] == hashlib.sha256(files[name]).hexdigest()
        assert facts["size_bytes"] == len(files[name])
    assert [path.name for path in (root / "checkpoints").iterdir()] == [target(root).name]


def test_a_fetched_checkpoint_is_not_fetched_again(fetch, root, files, closed_port):
    with serving(files) as (endpoint, _):
        fetch(endpoint)
    assert fetch(closed_port) == str(target(root))


def test_weights_in_other_folders_of_the_repository_do_not_disturb(fetch, root, files):
    with serving({**files, "onnx/other.safetensors": b"x"}) as (endpoint, _):
        assert fetch(endpoint) == str(target(root))


def test_a_repository_without_safetensors_is_refused_and_leaves_nothing(fetch, root, files):
    del files["model.safetensors"]
    with serving(files) as (endpoint, _):
        message = fetch(endpoint)
    assert message.startswith("CheckpointError:")
    assert "no model.safetensors" in message
    assert list((root / "checkpoints").iterdir()) == []


def test_a_hub_that_does_not_know_the_repository_is_named(fetch, root):
    with serving({}) as (endpoint, _):
        message = fetch(f"{endpoint}/elsewhere")
    assert message.startswith("CheckpointError:")
    assert REPOSITORY in message
    assert list((root / "checkpoints").iterdir()) == []


def test_every_pretrained_checkpoint_is_pinned_to_a_commit():
    """A branch moves: two machines would call different weights one workload."""
    for name in ("bert", "resnet"):
        for repository, revision in architectures.get(name).pretrained.values():
            assert len(revision) == 40, f"{repository}@{revision}"
            assert set(revision) <= set("0123456789abcdef")
