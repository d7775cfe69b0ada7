"""Results of a node record their origin, and whether they may be ranked."""

import json
from types import SimpleNamespace

import pytest
from report_support import document, record, run

from comparative_benchmark.fleet import node as fleet_node
from comparative_benchmark.fleet.node import marked
from comparative_benchmark.fleet.spool import Spool, Work
from comparative_benchmark.results.fleet import Allocation
from comparative_benchmark.results.results_file import decode_document, read_document

KEY = "a" * 32


def allocation(**changes):
    usual = {"fleet": "zoo", "campaign": "", "machine_class": "zen4", "job": "j", "node": "n1"}
    return Allocation(**{**usual, "environment_sha256": "0" * 64, **changes})


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (allocation(engine="slurm", exclusive=True), None),
        (allocation(engine="slurm", exclusive=False, not_exclusive="1 of 8 CPUs"), "1 of 8 CPUs"),
        # Slurm can prove it, so a missing proof counts as none.
        (allocation(engine="slurm"), "Slurm did not report"),
        (allocation(engine="local"), None),
    ],
)
def test_only_exclusive_allocations_are_ranked(tmp_path, where, reason):
    path = tmp_path / "results.json"
    both = document(record("w1"), record("w2", status="unsupported"))
    path.write_text(json.dumps(both))

    found = decode_document(json.dumps(marked(path, where)).encode(), "it")

    assert found.runs[0].allocation == where
    measured, failed = found.benchmarks
    assert not failed.measured.not_ranked
    if reason is None:
        assert measured.ranked
    else:
        assert not measured.ranked
        assert reason in measured.measured.not_ranked


def test_the_first_allocation_stays(tmp_path):
    """A job that continues on another node keeps what the first one measured."""
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document(record("w1"))))
    path.write_text(json.dumps(marked(path, allocation(engine="local"))))

    again = marked(path, allocation(engine="local", attempt=1))

    assert again["runs"][0]["allocation"]["attempt"] == 0


def add_run(path, run_id, name):
    """Adds a run with one result, as `cbs run --resume` does."""
    added = document(record(name, run_id=run_id), runs=[run(run_id)])
    if path.exists():
        old = json.loads(path.read_text())
        added = {**old, **{part: old[part] + added[part] for part in ("runs", "benchmarks")}}
    path.write_text(json.dumps(added))


@pytest.mark.parametrize("exclusive", [True, False])
def test_each_run_is_ranked_by_its_own_allocation(tmp_path, exclusive):
    path = tmp_path / "results.json"
    shared = {"engine": "slurm", "not_exclusive": "1 of 8 CPUs"}
    add_run(path, "old", "w1")
    path.write_text(json.dumps(marked(path, allocation(exclusive=exclusive, **shared))))
    add_run(path, "new", "w2")

    found = marked(path, allocation(exclusive=not exclusive, **shared))

    both = decode_document(json.dumps(found).encode(), "it").benchmarks
    assert [result.ranked for result in both] == [exclusive, not exclusive]


@pytest.mark.parametrize(
    ("host", "exclusive", "continues"),
    [("n1", True, True), ("n2", True, False), ("n1", False, False)],
)
def test_an_unfinished_race_continues_only_in_an_equal_allocation(
    tmp_path, monkeypatch, host, exclusive, continues
):
    """Slurm may start a job again on another node; results belong to the node that measured."""
    spool = Spool(tmp_path)
    spool.create()
    results = spool.work_folder(KEY) / "results.json"
    journal = results.with_suffix(".journal")
    work = Work(key=KEY, attempt=0, label="w", repeat=0, arguments=(), trials=2)
    where = {"engine": "slurm", "not_exclusive": "1 of 8 CPUs"}

    def killed(*_, **__):
        add_run(results, "old", "w1")
        journal.mkdir()
        return SimpleNamespace(returncode=-9)

    def finished(*_, **__):
        assert journal.exists() == continues
        add_run(results, "new", "w2")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(fleet_node, "subprocess", SimpleNamespace(run=killed, DEVNULL=-3))
    with pytest.raises(KeyboardInterrupt):
        fleet_node._run(spool, work, allocation(exclusive=True, **where))
    monkeypatch.setattr(fleet_node, "subprocess", SimpleNamespace(run=finished, DEVNULL=-3))
    assert fleet_node._run(spool, work, allocation(node=host, exclusive=exclusive, **where)) == ""

    found = read_document(spool.result_file(f"{KEY}.0"))
    assert {item.run_id: item.allocation.node for item in found.runs} == {"old": "n1", "new": host}
    assert [result.ranked for result in found.benchmarks] == [True, exclusive]
