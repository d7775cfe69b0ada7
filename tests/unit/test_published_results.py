"""The campaign of published results names cases and competitors that exist."""

import importlib
import re
from pathlib import Path

import pytest

from comparative_benchmark.cli.command import parse
from comparative_benchmark.engine.trial import parse_competitors
from openxla.benchmark.comparative_suite import catalog

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def campaign():
    """The script, which is in no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module("published_results")


def test_there_are_24_races_of_workloads_that_exist(campaign):
    names = [case.name for case in catalog.all_benchmarks()]
    assert len(campaign.RACES) == len({race.name for race in campaign.RACES}) == 24
    for race in campaign.RACES:
        options = parse(race.command()[3:])
        found = [name for name in names if re.fullmatch(options.name, name)]
        assert len(found) == (3 if "{}" in race.model else 1), race.name
        assert [str(item) for item in parse_competitors(",".join(options.backend), "cpu")] == [
            *race.stacks
        ]
        assert options.baseline in race.stacks
        assert options.resume
        assert options.busy


def test_no_two_races_measure_the_same_trial(campaign):
    trials = [(race.model, stack) for race in campaign.RACES for stack in race.stacks]
    assert len(trials) == len(set(trials))


def test_the_list_has_estimates(campaign, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["published_results.py", "--list"])
    assert campaign.main() == 0
    assert re.search(r"24 races, about \d+\.\d h on two cores", capsys.readouterr().out)
