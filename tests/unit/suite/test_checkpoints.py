"""Seeded checkpoints: the same bytes on every machine."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.installation import ROOT_DIR_VARIABLE
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures import TensorInit

BERT, RESNET = architectures.get("bert"), architectures.get("resnet")
TINY = {"bert-tiny": BERT, "resnet-tiny": RESNET}
GOLDEN = {
    "bert-tiny": "06f62c00f5bad28c117e1b3527e4d82d7e8f3b511cae4b07257f6326a5299f2c",
    "resnet-tiny": "0d532ab394b2a5476ceb3f609b2ee25906ea5af0010f8ff09990e329f70116c9",
}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", TINY)
def test_a_seeded_checkpoint_is_the_golden_bytes_in_every_root(name, tmp_path, monkeypatch):
    contents = []
    for run in ("first", "second"):
        monkeypatch.setenv(ROOT_DIR_VARIABLE, str(tmp_path / run))
        directory = checkpoints.seeded(TINY[name], name)
        assert directory.is_relative_to(tmp_path / run / "checkpoints")
        contents.append({path.name: path.read_bytes() for path in directory.iterdir()})
        assert sha256(directory / "model.safetensors") == GOLDEN[name]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", TINY)
def test_the_manifest_holds_size_and_digest_of_each_file(name):
    directory = checkpoints.seeded(TINY[name], name)
    manifest = json.loads((directory / "manifest.json").read_text())
    names = {path.name for path in directory.iterdir()} - {"manifest.json"}
    assert {"config.json", "model.safetensors"} <= names == set(manifest["files"])
    for file, facts in manifest["files"].items():
        assert facts["sha256"] == sha256(directory / file)
        assert facts["size_bytes"] == (directory / file).stat().st_size
    assert json.loads((directory / "config.json").read_text()) == TINY[name].config(name)


@pytest.mark.parametrize("name", TINY)
def test_the_safetensors_library_reads_what_was_generated(name):
    architecture = TINY[name]
    inits = {init.name: init for init in architecture.tensors(architecture.config(name))}
    tensors = load_file(checkpoints.seeded(architecture, name) / "model.safetensors")
    assert set(tensors) == set(inits)
    for key, value in tensors.items():
        expected = checkpoints.generate(inits[key], seed=0)
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        assert np.array_equal(value, expected)


def test_load_tensors_gives_canonical_names():
    tensors = checkpoints.load_tensors(BERT, checkpoints.seeded(BERT, "bert-tiny"))
    assert "embeddings.word_embeddings.weight" in tensors
    assert BERT.canonical_weight_name("bert.embeddings.LayerNorm.gamma") in tensors
    assert BERT.canonical_weight_name("bert.embeddings.LayerNorm.beta") in tensors


def test_a_tensor_does_not_depend_on_its_neighbours(tmp_path):
    inits = list(RESNET.tensors(RESNET.config("resnet-tiny")))
    alone = {init.name: checkpoints.generate(init, seed=3) for init in reversed(inits[:20])}
    for count, order in ((20, 1), (20, -1), (7, 1)):
        chosen = inits[:count][::order]
        path = tmp_path / f"{count}{order}.safetensors"
        checkpoints.write_weights(path, chosen, seed=3)
        for name, value in load_file(path).items():
            assert np.array_equal(value, alone[name])
    assert sha256(tmp_path / "201.safetensors") == sha256(tmp_path / "20-1.safetensors")


def test_seed_and_name_decide_the_values():
    init = TensorInit(name="a", shape=(64,), stddev=1.0)
    values = checkpoints.generate(init, seed=0)
    assert np.array_equal(values, checkpoints.generate(init, seed=0))
    assert not np.array_equal(values, checkpoints.generate(init, seed=1))
    other = TensorInit(name="b", shape=(64,), stddev=1.0)
    assert not np.array_equal(values, checkpoints.generate(other, seed=0))


@pytest.mark.parametrize(("mean", "stddev"), [(0.0, 1.0), (1.0, 0.2), (-3.0, 0.01)])
def test_a_large_tensor_has_the_declared_moments(mean, stddev):
    init = TensorInit(name="big", shape=(1000, 1001), mean=mean, stddev=stddev)
    values = checkpoints.generate(init, seed=0).astype(np.float64)
    # Five standard errors of a mean and of a uniform's variance.
    assert abs(values.mean() - mean) < 5 * stddev / 1000 + 1e-7 * abs(mean)
    assert abs(values.std() / stddev - 1) < 5 * np.sqrt(0.2 / 1e6) + 1e-4
    assert np.abs(values - mean).max() <= stddev * np.sqrt(3) * (1 + 1e-4)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 0), (5, 7)])
def test_tensors_have_their_shapes_also_the_odd_and_the_empty(shape):
    values = checkpoints.generate(TensorInit(name="x", shape=shape, stddev=1.0), seed=0)
    assert values.shape == shape
    assert values.dtype == np.float32


def test_counters_are_int64_constants():
    values = checkpoints.generate(TensorInit(name="n", shape=(), dtype="I64"), seed=0)
    assert values.dtype == np.int64
    assert values == 0


def test_one_network_under_two_names_is_one_checkpoint():
    identities = {
        checkpoints.identity(RESNET, {"model_name": name})
        for name in ("microsoft/resnet-50", "torchvision/resnet50")
    }
    assert len(identities) == 1
    assert RESNET.canonical_name("torchvision/resnet50") == "microsoft/resnet-50"


def test_another_seed_is_another_directory():
    first = checkpoints.resolve(BERT, {"model_name": "bert-tiny"})
    second = checkpoints.resolve(BERT, {"model_name": "bert-tiny", "seed": 1})
    assert first != second
    assert sha256(first / "model.safetensors") != sha256(second / "model.safetensors")


def test_an_existing_checkpoint_is_not_written_again():
    directory = checkpoints.seeded(BERT, "bert-tiny")
    before = (directory / "model.safetensors").stat()
    assert checkpoints.seeded(BERT, "bert-tiny") == directory
    after = (directory / "model.safetensors").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_directory_without_a_manifest_is_made_again():
    """Remains of a manual copy or a broken disk must not block the name for ever."""
    directory = checkpoints.seeded(BERT, "bert-tiny")
    (directory / "manifest.json").unlink()
    (directory / "model.safetensors").write_bytes(b"")
    assert checkpoints.seeded(BERT, "bert-tiny") == directory
    assert sha256(directory / "model.safetensors") == GOLDEN["bert-tiny"]
    assert (directory / "manifest.json").is_file()


def test_a_failure_leaves_no_directory_behind(root, monkeypatch):
    def broken(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_weights", broken)
    with pytest.raises(OSError, match="No space"):
        checkpoints.seeded(BERT, "bert-tiny")
    assert list((root / "checkpoints").iterdir()) == []


def test_processes_that_make_one_checkpoint_at_once_leave_one_valid_directory(root):
    program = (
        "import sys\n"
        "from openxla.benchmark.models import architectures, checkpoints\n"
        "bert = architectures.get('bert')\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print(checkpoints.seeded(bert, 'bert-tiny'))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = {process.communicate(timeout=40)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    (directory,) = (root / "checkpoints").iterdir()
    assert answers == {str(directory)}
    assert sha256(directory / "model.safetensors") == GOLDEN["bert-tiny"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checkpoint": "x"}, "'x' is not one of seeded, trained, pretrained"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"seed": 1.5}, "seed"),
        ({"seed": "0"}, "seed"),
        ({"seed": True}, "seed"),
        ({"model_name": "bert-huge"}, "no model 'bert-huge'; choices are bert-base-uncased"),
        ({"checkpoint": "pretrained"}, "no pretrained checkpoint for bert-tiny"),
    ],
)
def test_wrong_parameters_are_refused(root, changes, message):
    parameters = {"model_name": "bert-tiny", **changes}
    for function in (checkpoints.resolve, checkpoints.identity):
        with pytest.raises(DefinitionError, match=message):
            function(BERT, parameters)
    assert not root.exists()
