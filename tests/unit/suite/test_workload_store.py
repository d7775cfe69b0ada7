"""The local store of inputs and expected outputs never uses damaged or outdated files."""

import contextlib
import json

import attrs
import numpy as np
import pytest
from msgspec import to_builtins

from openxla.benchmark.artifacts import array_files, workload_store
from openxla.benchmark.artifacts.workload_store import ArtifactError, WorkloadCost
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.workloads import workload_of

CASES = {case.model.name: case for case in catalog.all_benchmarks()}
BERT, PRIVATE = CASES["BERT_TINY_FP32_JAX_32XI32_BATCH1"], CASES["EXAMPLE_FP32_PT_BATCH1"]


COST = WorkloadCost(flops=7, flops_source="a count", bytes=9, bytes_source="another")


def publish(case=BERT, versions=None, inputs=2, value=0, cost=COST, without_second=None):
    workload = workload_of(case)
    with workload_store.new_directory(workload) as directory:
        for prefix in ("", "second-") if without_second is None else ("",):
            array_files.save_all(
                directory / f"{prefix}inputs",
                "input",
                [np.arange(8) + i + value for i in range(inputs)],
            )
            truth = np.linspace(0, 1, 8)
            array_files.save_all(directory / f"{prefix}truth", "output", [truth])
            same_type = truth.astype(np.float32)
            array_files.save_all(directory / f"{prefix}reference", "output", [same_type])
        return workload_store.publish(
            directory,
            workload=workload,
            case=case,
            versions=versions or {"numpy": np.__version__},
            cost=cost,
            without_second=without_second,
        )


def find(case=BERT):
    return workload_store.find(workload_of(case))


def edit_manifest(artifacts, change):
    path = artifacts.directory / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def test_nothing_is_found_where_nothing_was_published(root):
    assert find() is None
    assert not root.exists()


def test_what_was_published_is_found(root):
    published = publish(inputs=12)
    found = find()
    assert found.directory == published.directory == workload_store.directory_of(workload_of(BERT))
    assert [path.name for path in found.inputs] == [f"input_{index}.npy" for index in range(12)]
    assert [path.name for path in found.truth] == ["output_0.npy"]
    assert [path.name for path in found.reference] == ["output_0.npy"]
    assert found.digests == published.digests
    assert len(found.digests) == 28
    assert [path.name for path in (root / "workloads").iterdir()] == [workload_of(BERT).id]


def test_the_second_input_is_found_next_to_the_first():
    publish(inputs=2)
    found = find()
    assert found.without_second is None
    assert found.second.inputs == [
        found.directory / "second-inputs" / f"input_{index}.npy" for index in range(2)
    ]
    assert found.second.truth == [found.directory / "second-truth/output_0.npy"]
    assert found.first.inputs == found.inputs
    assert len(found.second_files) == 4


def test_why_there_is_no_second_input_is_kept():
    publish(without_second="it knows one input only")
    found = find()
    assert found.second is None
    assert found.second_files == []
    assert found.without_second == "it knows one input only"


def test_what_was_made_before_there_was_a_second_input_is_made_again():
    publish(without_second="x")
    edit_manifest(find(), lambda manifest: manifest.pop("without_second"))
    assert find() is None
    # Fetched files stay unchanged.
    edit_manifest(
        publish(without_second="x"),
        lambda manifest: manifest.update(
            without_second=None, fetched={"model": "M", "url": "u", "manifest_sha256": "5" * 64}
        ),
    )
    found = workload_store.find(workload_of(BERT), locked={"5" * 64})
    assert found.second is None
    assert "predate second inputs" in found.without_second


def test_the_manifest_says_who_made_what_of_what():
    manifest = publish().manifest
    assert manifest.producer.benchmark_name == BERT.name
    assert manifest.producer.versions == {"numpy": np.__version__}
    assert manifest.workload["digest"] == workload_of(BERT).digest
    stored = json.loads((find().directory / "manifest.json").read_text())
    assert stored["files"] == to_builtins(manifest.files)


def test_the_cost_of_an_iteration_is_kept():
    assert publish().cost == COST
    assert find().cost == COST
    unknown = WorkloadCost.unknown("no counter")
    publish(cost=unknown)
    assert find().cost == unknown


def test_a_manifest_from_before_costs_were_counted_still_holds():
    edit_manifest(publish(), lambda manifest: manifest.pop("cost"))
    assert find().cost == WorkloadCost()


@pytest.mark.parametrize(
    "cost", [1, [], {"flops": -1}, {"flops": 1.5}, {"flops": "1"}, {"bytes_source": 1}, {"x": 1}]
)
def test_a_malformed_cost_is_named_with_the_remedy(cost):
    edit_manifest(publish(), lambda manifest: manifest.update(cost=cost))
    with pytest.raises(ArtifactError, match=r"manifest\.json.*--generate-artifacts"):
        find()


def test_cases_of_one_workload_share_what_was_published():
    publish(BERT)
    assert find(CASES["BERT_TINY_FP32_PT_32XI32_BATCH1"]) is not None
    assert find(CASES["BERT_TINY_FP16_PT_32XI32_BATCH1"]) is None


def test_publishing_again_replaces(root):
    publish(value=0)
    publish(value=5)
    assert int(array_files.load(find().inputs[0])[0]) == 5
    assert len(list((root / "workloads").iterdir())) == 1


def change_a_byte(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "changed": change_a_byte,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize(
    "file", ["inputs/input_1.npy", "truth/output_0.npy", "reference/output_0.npy"]
)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_with_the_remedy(damage, file):
    artifacts = publish()
    DAMAGES[damage](artifacts.directory / file)
    with pytest.raises(ArtifactError) as caught:
        find()
    message = str(caught.value)
    assert file.rpartition("/")[2] in message
    assert str(artifacts.directory) in message
    assert "--generate-artifacts" in message


def test_a_file_that_the_manifest_does_not_list_is_not_taken_for_an_input():
    artifacts = publish()
    array_files.save_all(artifacts.directory / "stray", "input", [np.zeros(1)] * 3)
    (artifacts.directory / "stray" / "input_2.npy").rename(
        artifacts.directory / "inputs" / "input_2.npy"
    )
    with contextlib.suppress(ArtifactError):  # refusing it would be right, too
        assert [path.name for path in find().inputs] == ["input_0.npy", "input_1.npy"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'"text"', b"{}", b"\xff", b'{"producer": {}, "files": 1}'],
)
def test_a_malformed_manifest_is_named_with_the_remedy(content):
    (publish().directory / "manifest.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"manifest\.json.*--generate-artifacts"):
        find()


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.pop("producer"),
        lambda manifest: manifest.pop("workload"),
        lambda manifest: manifest.update(files=["inputs/input_0.npy"]),
        lambda manifest: manifest["files"]["inputs/input_0.npy"].pop("sha256"),
        lambda manifest: manifest["producer"].pop("source_sha256"),
    ],
)
def test_a_manifest_without_what_it_must_hold_is_an_error(change):
    edit_manifest(publish(), change)
    with pytest.raises(ArtifactError, match=r"manifest\.json is malformed"):
        find()


def test_a_manifest_does_not_list_itself():
    facts = {"sha256": "0" * 64, "size_bytes": 1}
    edit_manifest(publish(), lambda manifest: manifest["files"].update({"manifest.json": facts}))
    with pytest.raises(ArtifactError, match=r"the path 'manifest\.json' is reserved"):
        find()


def test_another_manifest_version_or_workload_does_not_hold():
    artifacts = publish()
    edit_manifest(artifacts, lambda manifest: manifest.update(manifest_version=99))
    assert find() is None
    artifacts = publish()
    edit_manifest(artifacts, lambda manifest: manifest["workload"].update(digest="0" * 64))
    assert find() is None


def own_case(tmp_path, monkeypatch, base=BERT):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_store_model.py").write_text("a = 1\n")
    implementation = attrs.evolve(base.model.model_impl, module_path="own_store_model")
    model = attrs.evolve(base.model, model_impl=implementation)
    return BenchmarkCase.build(model=model, input_data=base.input_data)


def test_a_changed_implementation_invalidates_what_it_made(tmp_path, monkeypatch):
    case = own_case(tmp_path, monkeypatch)
    publish(case)
    assert find(case) is not None
    (tmp_path / "own_store_model.py").write_text("a = 2\n")
    assert find(case) is None


def test_a_shared_workload_outlives_a_change_of_versions():
    publish(BERT, versions={"numpy": "0.1"})
    assert find(BERT) is not None


@pytest.mark.parametrize("versions", [{"numpy": "0.1"}, {"no-such-package": "1"}])
def test_a_private_workload_does_not(versions):
    publish(PRIVATE, versions=versions)
    assert find(PRIVATE) is None
    publish(PRIVATE)
    assert find(PRIVATE) is not None


def test_a_directory_in_the_making_is_not_found():
    with workload_store.new_directory(workload_of(BERT)) as directory:
        array_files.save_all(directory / "inputs", "input", [np.zeros(2)])
        assert find() is None
