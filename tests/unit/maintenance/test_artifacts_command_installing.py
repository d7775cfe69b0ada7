"""Published artifacts of a workload are installed into the root if they are locked."""

import json
import tarfile

import attrs
import numpy as np
import pytest
from artifact_support import DATE
from artifacts_command_support import document_of, publication

from openxla.benchmark.artifacts import archives, array_files, installing, manifests, workload_store
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.manifests import ArtifactFile, Manifest
from openxla.benchmark.artifacts.published_models import Source, fetch
from openxla.benchmark.artifacts.workload_store import ArtifactError
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.files import sha256_of
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.workloads import workload_of

CASES = {case.name: case for case in catalog.all_benchmarks()}


def default(model):
    return CASES[f"models/{model}/inputs/INPUT_DATA_MODEL_DEFAULT"]


BERT, PRIVATE = default("BERT_TINY_FP32_JAX_32XI32_BATCH1"), default("EXAMPLE_FP32_PT_BATCH1")
# The same workload, in another framework.
BERT_PT = default("BERT_TINY_FP32_PT_32XI32_BATCH1")


def make(case=BERT, versions=None):
    """Makes a workload's artifacts without the model, since their values do not matter here."""
    workload = workload_of(case)
    with workload_store.new_directory(workload) as directory:
        for prefix, last in (("", 1), ("second-", 2)):
            inputs, truth = [last * np.arange(8), np.arange(3.0)], np.linspace(0, last, 8)
            array_files.save_all(directory / f"{prefix}inputs", "input", inputs)
            array_files.save_all(directory / f"{prefix}truth", "output", [truth])
            same_type = truth.astype(np.float32)
            array_files.save_all(directory / f"{prefix}reference", "output", [same_type])
        return workload_store.publish(
            directory, workload=workload, case=case, versions=versions or {"numpy": np.__version__}
        )


def wipe(monkeypatch, tmp_path):
    """Switches to the state of another machine."""
    monkeypatch.setenv("CBS_ROOT_DIR", str(tmp_path / "another-root"))


def fetched_from(directory):
    (found,) = fetch([Source(url=str(directory))], cache=Cache())
    return found


def install(directory, case=BERT):
    return installing.install_workload(
        fetched_from(directory), url="gs://x/M", case=case, workload=workload_of(case)
    )


def locked(artifacts):
    return {artifacts.origin["manifest_sha256"]}


def test_another_machine_has_the_same_bytes_and_knows_where_from(tmp_path, monkeypatch):
    made = make()
    directory = publication(BERT, tmp_path / "M")
    wipe(monkeypatch, tmp_path)
    found = install(directory)
    assert found.directory == workload_store.directory_of(workload_of(BERT))
    assert found.digests == made.digests
    assert len(found.inputs) == 2
    assert found.origin == {
        "model": BERT.model.name,
        "url": "gs://x/M",
        "manifest_sha256": fetched_from(directory).manifest_sha256,
    }
    again = workload_store.find(workload_of(BERT), locked=locked(found))
    assert again.manifest == found.manifest
    # It serves the same model in another framework.
    assert workload_store.find(workload_of(BERT_PT), locked=locked(found)).origin == found.origin


def test_archives_serve_as_well_as_files(tmp_path, monkeypatch):
    made = make()
    directory = tmp_path / "M"
    for name, kind, stem in (
        ("inputs_npy.tgz", "inputs", "input"),
        ("outputs_npy.tgz", "reference", "output"),
        ("truth_npy.tgz", "truth", "output"),
    ):
        paths = array_files.numbered(made.directory / kind, stem)
        archives.pack(directory / name, {path.name: path for path in paths})
    second = {str(path.relative_to(made.directory)): path for path in made.second_files}
    archives.pack(directory / "second_npy.tgz", second)
    document = document_of(made)
    del document["date"]
    (directory / "workload.json").write_text(json.dumps(document))
    types = {
        "inputs_npy.tgz": "inputs",
        "outputs_npy.tgz": "outputs",
        "truth_npy.tgz": "truth",
        "second_npy.tgz": "second",
        "workload.json": "workload",
    }
    write_manifest(directory, types)
    wipe(monkeypatch, tmp_path)
    found = install(directory)
    assert found.digests == made.digests
    assert np.array_equal(array_files.load(found.truth[0]), np.linspace(0, 1, 8))
    assert np.array_equal(array_files.load(found.second.truth[0]), np.linspace(0, 2, 8))
    assert not list((Cache().directory / "unpacked").iterdir())
    # One that was published without the second input is used unchanged, and reports it.
    (directory / "second_npy.tgz").unlink()
    del types["second_npy.tgz"]
    write_manifest(directory, types)
    wipe(monkeypatch, tmp_path / "again")
    found = install(directory)
    assert found.second is None
    assert found.without_second == "the second input was not published"
    assert found.digests == {
        name: digest for name, digest in made.digests.items() if not name.startswith("second-")
    }


def write_manifest(directory, types):
    entries = [
        ArtifactFile(
            path=path,
            artifact_type=kind,
            sha256=sha256_of(directory / path),
            size_bytes=(directory / path).stat().st_size,
            producers={},
            date=DATE,
        )
        for path, kind in types.items()
    ]
    manifests.write_manifest(directory, Manifest(model=BERT.model.name, files=tuple(entries)))


def test_what_was_fetched_holds_while_it_is_locked_whoever_made_it(tmp_path, monkeypatch):
    make()

    def other_source(document):
        document["producer"]["source_sha256"] = "f" * 64

    directory = publication(BERT, tmp_path / "M", other_source)
    wipe(monkeypatch, tmp_path)
    found = install(directory)
    assert workload_store.find(workload_of(BERT), locked=locked(found)) is not None
    assert workload_store.find(workload_of(BERT)) is None


def test_another_workload_is_refused_by_name(tmp_path, monkeypatch):
    make()

    def other_workload(document):
        document["workload"]["digest"] = "ab" * 32

    directory = publication(BERT, tmp_path / "M", other_workload)
    wipe(monkeypatch, tmp_path)
    with pytest.raises(ArtifactError) as raised:
        install(directory)
    for part in (
        BERT.model.name,
        "gs://x/M",
        "abababababab",
        workload_of(BERT).id,
        "lock the model again",
    ):
        assert part in str(raised.value)
    assert workload_store.find(workload_of(BERT)) is None


def test_inputs_that_were_not_published_are_nothing(tmp_path, monkeypatch):
    make()
    directory = publication(BERT, tmp_path / "M")
    wipe(monkeypatch, tmp_path)
    other = attrs.evolve(BERT, name=BERT.name.replace("MODEL_DEFAULT", "SHORT"))
    workload = attrs.evolve(workload_of(BERT), digest="cd" * 32)
    found = installing.install_workload(
        fetched_from(directory), url="u", case=other, workload=workload
    )
    assert found is None


def test_weights_of_another_framework_version_have_another_truth(tmp_path, monkeypatch):
    make(PRIVATE, versions={"numpy": "1.0.0"})
    with monkeypatch.context() as there:
        there.setattr(workload_store, "version", lambda _: "1.0.0")
        directory = publication(PRIVATE, tmp_path / "M")
    wipe(monkeypatch, tmp_path)
    assert install(directory, PRIVATE) is None
    monkeypatch.setattr(workload_store, "version", lambda _: "1.0.0")
    assert install(directory, PRIVATE) is not None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d.pop("files"), "files"),
        (lambda d: d["files"].update({"../up.npy": d["files"]["inputs/input_0.npy"]}), "up.npy"),
        (lambda d: d["files"]["truth/output_0.npy"].update(sha256="0" * 64), "truth/output_0.npy"),
        (lambda d: d["files"]["truth/output_0.npy"].update(size_bytes=1), "truth/output_0.npy"),
        (lambda d: d.update(manifest_version=1), "manifest_version"),
        (lambda d: d["producer"].update(versions={"numpy": 2}), "version"),
        (lambda d: d.update(cost={"flops": "many"}), "malformed"),
        (lambda d: d["workload"].update(digest=None), "digest"),
    ],
)
def test_a_bad_document_puts_nothing_in_place(tmp_path, monkeypatch, change, named):
    make()
    directory = publication(BERT, tmp_path / "M", change)
    wipe(monkeypatch, tmp_path)
    with pytest.raises(ArtifactError, match=named):
        install(directory)
    places = list((tmp_path / "another-root" / "workloads").glob("[!.]*"))
    assert places == []


def test_an_archive_that_leads_elsewhere_puts_nothing_in_place(tmp_path, monkeypatch):
    made = make()
    directory = publication(BERT, tmp_path / "M")
    evil = directory / "inputs_npy.tgz"
    with tarfile.open(evil, "w:gz") as tar:
        tar.add(made.inputs[0], arcname="../../input_0.npy")
    entries = manifests.read_manifest(directory).files
    write_manifest(
        directory, {**{entry.path: entry.artifact_type for entry in entries}, evil.name: "inputs"}
    )
    wipe(monkeypatch, tmp_path)
    with pytest.raises(ArtifactError, match="points outside"):
        install(directory)
    assert not list((tmp_path / "another-root" / "workloads").glob("[!.]*"))


def test_a_damaged_copy_is_replaced(tmp_path, monkeypatch):
    make()
    directory = publication(BERT, tmp_path / "M")
    wipe(monkeypatch, tmp_path)
    found = install(directory)
    found.truth[0].chmod(0o644)
    found.truth[0].write_bytes(b"something else")
    with pytest.raises(ArtifactError, match=r"output_0\.npy"):
        workload_store.find(workload_of(BERT), locked=locked(found))
    again = install(directory)
    assert workload_store.find(workload_of(BERT), locked=locked(again)) is not None


# checkpoints


@pytest.fixture
def checkpoint():
    """The checkpoint of the tiny model, made here."""
    architecture = architectures.get("bert")
    return checkpoints.resolve(architecture, architecture.complete(BERT.model.model_parameters))


def install_checkpoint(directory, case=BERT):
    return installing.install_checkpoint(fetched_from(directory), url="gs://x/M", case=case)


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("packed", [False, True])
def test_a_checkpoint_comes_to_where_models_look(tmp_path, monkeypatch, checkpoint, packed):
    make()
    due = files_of(checkpoint)
    directory = publication(BERT, tmp_path / "M")
    if packed:
        directory = tmp_path / "packed"
        archives.pack_directory(directory / "checkpoint.tgz", checkpoint)
        write_manifest(directory, {"checkpoint.tgz": "checkpoint"})
    wipe(monkeypatch, tmp_path)
    assert installing.lacks_checkpoint(BERT)
    target = install_checkpoint(directory)
    assert files_of(target) == due
    assert not installing.lacks_checkpoint(BERT)
    architecture = architectures.get("bert")
    monkeypatch.setattr(checkpoints, "write_weights", lambda *_, **__: pytest.fail("made again"))
    parameters = architecture.complete(BERT.model.model_parameters)
    assert checkpoints.resolve(architecture, parameters) == target


def test_a_checkpoint_of_another_seed_is_refused(tmp_path, monkeypatch, checkpoint):
    make()
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    (checkpoint / "manifest.json").write_text(json.dumps({**manifest, "seed": 7}))
    directory = publication(BERT, tmp_path / "M")
    wipe(monkeypatch, tmp_path)
    with pytest.raises(ArtifactError, match=r"seed is 7.*has 0"):
        install_checkpoint(directory)
    assert installing.lacks_checkpoint(BERT)


def test_weights_that_are_not_what_the_checkpoint_says(tmp_path, monkeypatch, checkpoint):
    make()
    (checkpoint / "model.safetensors").write_bytes(b"other weights")
    directory = publication(BERT, tmp_path / "M")
    wipe(monkeypatch, tmp_path)
    with pytest.raises(ArtifactError, match=r"the checkpoint's model\.safetensors"):
        install_checkpoint(directory)
    assert installing.lacks_checkpoint(BERT)


@pytest.mark.parametrize(
    ("name", "message"),
    [("manifest.json", "is reserved"), ("../x", "points outside its directory")],
)
def test_a_checkpoint_that_lists_other_places_is_refused(
    tmp_path, monkeypatch, checkpoint, name, message
):
    make()
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"][name] = manifest["files"]["config.json"]
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    directory = publication(BERT, tmp_path / "M")
    wipe(monkeypatch, tmp_path)
    with pytest.raises(ArtifactError, match=rf"checkpoint's manifest is malformed: .*{message}"):
        install_checkpoint(directory)
    assert installing.lacks_checkpoint(BERT)


def test_a_model_without_architecture_has_no_checkpoint():
    assert installing.checkpoint_directory_of(PRIVATE) is None
    assert not installing.lacks_checkpoint(PRIVATE)
