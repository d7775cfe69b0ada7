"""Results of a node record their origin, and whether they may be ranked."""

import json

import pytest
from report_support import document, record

from comparative_benchmark.fleet.node import marked
from comparative_benchmark.results.fleet import Allocation
from comparative_benchmark.results.results_file import decode_document


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
