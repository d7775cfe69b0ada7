"""Verdicts on classes: planted differences are found on their class, and on their node only."""

import json

import pytest
from report_support import document, metrics, record, run

from comparative_benchmark import cli
from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.fleet.fleet_tables import print_verdicts
from comparative_benchmark.fleet.judging import changes, class_verdicts, slow_nodes_by_class
from comparative_benchmark.results.results_file import decode_document, encode
from comparative_benchmark.terminal.screen import output_screen

EAGER, XLA, IREE = "pt_inductor:eager", "jax_xla:xla", "iree:llvm-cpu"
NODES = tuple(f"n{number}" for number in range(8))


def allocated(run_id, node, *, machine_class="zen4", exclusive=True, campaign="", **fields):
    """A run that a fleet started."""
    return {
        **run(run_id, day=fields.pop("day", 1)),
        "allocation": {
            "fleet": "nightly",
            "campaign": campaign,
            "machine_class": machine_class,
            "job": f"job of {run_id}",
            "node": node,
            "engine": "slurm",
            "exclusive": exclusive,
            "environment_sha256": "0" * 64,
            **fields,
        },
    }


def race(run_id, scales, *, seed, **changes):
    """The results of one job: competitors with these scales of their latencies."""
    return [
        record(
            "w1",
            competitor,
            run_id=run_id,
            level="compiler_level" if competitor == IREE else "framework_level",
            metrics={**metrics(scale, seed=seed + number, race=run_id), **changes},
        )
        for number, (competitor, scale) in enumerate(scales.items())
    ]


def campaign(scales_of, *, classes=("zen4",), nodes=NODES, **changes):
    """A document with one job on each node of each class."""
    runs, records = [], []
    for class_number, machine_class in enumerate(classes):
        for number, node in enumerate(nodes):
            run_id = f"{machine_class}-{node}"
            runs.append(allocated(run_id, f"{machine_class}-{node}", machine_class=machine_class))
            seed = 100 * class_number + 10 * number
            records += race(run_id, scales_of(machine_class, node), seed=seed, **changes)
    return decode_document(json.dumps(document(*records, runs=runs)).encode(), "it")


def verdicts(found):
    return {(item.machine_class, item.competitor): item.verdict for item in found}


def test_each_class_has_its_own_verdict():
    def scales(machine_class, _):
        return {EAGER: 1.0, XLA: 0.5 if machine_class == "zen4" else 2.0}

    found = class_verdicts(campaign(scales, classes=("zen4", "icelake")))

    assert verdicts(found) == {("zen4", XLA): Verdict.FASTER, ("icelake", XLA): Verdict.SLOWER}
    assert all(item.reason.endswith("for this class") for item in found)
    assert [len(item.ratio.by_node) for item in found] == [8, 8]


def test_nodes_that_disagree_give_no_verdict_although_each_is_certain():
    scales = {node: 0.5 if number % 2 else 2.0 for number, node in enumerate(NODES)}
    [item] = class_verdicts(campaign(lambda _, node: {EAGER: 1.0, XLA: scales[node]}))

    assert item.verdict is Verdict.UNCLEAR
    assert all(not one.low < 1 < one.high for one in item.ratio.by_node.values())


def test_one_node_gives_no_verdict_on_its_class():
    [item] = class_verdicts(campaign(lambda *_: {EAGER: 1.0, XLA: 0.5}, nodes=NODES[:1]))

    assert item.verdict is Verdict.UNCLEAR
    assert "needs more nodes" in item.reason


def test_shared_allocations_are_not_judged():
    found = class_verdicts(
        campaign(lambda *_: {EAGER: 1.0, XLA: 0.5}, not_ranked="other jobs could run on the node")
    )

    assert not found


def test_the_baseline_can_be_chosen():
    found = class_verdicts(campaign(lambda *_: {EAGER: 1.0, XLA: 0.5, IREE: 4.0}), XLA)

    assert verdicts(found) == {("zen4", EAGER): Verdict.SLOWER, ("zen4", IREE): Verdict.SLOWER}


def test_competitors_that_a_job_measured_on_two_nodes_are_not_compared():
    runs, records = [], []
    for number, node in enumerate(NODES):
        for competitor, place in ((EAGER, node), (XLA, f"{node}-other")):
            run_id = f"{competitor} {node}"
            runs.append(allocated(run_id, place, job=f"job {number}"))
            records += race(run_id, {competitor: 1.0}, seed=number)
    found = decode_document(json.dumps(document(*records, runs=runs)).encode(), "it")

    assert not class_verdicts(found, EAGER)


def test_a_baseline_in_several_frameworks_is_compared_within_each():
    """A framework without it has no verdict, as in `cbs show`."""
    scales = {(XLA, "JAX"): 1.0, (XLA, "TF_V2"): 1.0, (IREE, "JAX"): 2.0, (IREE, "TF_V2"): 0.5}
    scales[EAGER, "PYTORCH"] = 1.0
    records = [
        record(
            "w1",
            competitor,
            run_id=node,
            framework=f"ModelFrameworkType.{framework}",
            benchmark_name=f"models/W1_{framework}/inputs/DEFAULT",
            metrics=metrics(scale, seed=10 * number + position, race=node),
        )
        for number, node in enumerate(NODES)
        for position, ((competitor, framework), scale) in enumerate(scales.items())
    ]
    runs = [allocated(node, node) for node in NODES]
    found = decode_document(json.dumps(document(*records, runs=runs)).encode(), "it")

    assert [
        (item.competitor, item.framework, item.verdict) for item in class_verdicts(found, XLA)
    ] == [(IREE, "jax", Verdict.SLOWER), (IREE, "tf_v2", Verdict.FASTER)]


def test_a_step_of_one_node_belongs_to_the_node():
    before = campaign(lambda *_: {EAGER: 1.0, XLA: 1.0})
    after = campaign(lambda _, node: {EAGER: 1.0, XLA: 1.5 if node == "n3" else 1.0})

    items = {item.competitor: item for item in changes(before, after)}

    assert items[XLA].verdict is not Verdict.SLOWER
    assert items[XLA].one_node.node == "zen4-n3"
    assert items[EAGER].one_node is None


def test_a_step_of_all_nodes_belongs_to_the_program():
    before = campaign(lambda *_: {EAGER: 1.0, XLA: 1.0})
    after = campaign(lambda *_: {EAGER: 1.0, XLA: 1.5})

    items = {item.competitor: item for item in changes(before, after)}

    assert items[XLA].verdict is Verdict.SLOWER
    assert items[XLA].one_node is None


def test_devices_of_one_class_are_not_averaged(capsys):
    def night(gpu, cpu):
        runs, records = [], []
        for number, node in enumerate(NODES):
            for device, scale in (("host-gpu", gpu), ("host-cpu", cpu)):
                name = f"{node}-{device}"
                runs.append(allocated(name, node))
                for one in race(name, {XLA: scale}, seed=10 * number):
                    one["definition"]["device"] = device
                    records.append(one)
        return decode_document(json.dumps(document(*records, runs=runs)).encode(), "it")

    found = changes(night(1.0, 1.0), night(2.0, 0.5))
    assert [item.verdict for item in found] == [Verdict.SLOWER, Verdict.FASTER]
    assert [item.device for item in found] == ["host-gpu", "host-cpu"]
    print_verdicts(found, output_screen(220))
    printed = capsys.readouterr().out
    assert " on host-gpu" in printed
    assert " on host-cpu" in printed


def canaries(slow):
    """Three nights of canaries; `slow` maps a node to its share of the usual rate."""
    runs = [
        allocated(
            f"{node}-{night}",
            node,
            day=night,
            canaries={
                "compute": 100 * slow.get(node, 1.0) * (1 + 0.001 * ((7 * number + night) % 5)),
                "bandwidth": 10 * (1 + 0.001 * ((3 * number + night) % 5)),
            },
        )
        for night in (1, 2, 3)
        for number, node in enumerate(NODES)
    ]
    records = [item for one in runs for item in race(one["run_id"], {EAGER: 1.0}, seed=1)]
    return decode_document(json.dumps(document(*records, runs=runs)).encode(), "it")


def test_a_slow_node_is_named():
    [named] = slow_nodes_by_class([canaries({"n5": 0.95})])["zen4"].named

    assert (named.node, named.canary) == ("n5", "compute")
    assert named.slowdown == pytest.approx(1.05, abs=0.01)


def test_equal_nodes_are_not_named():
    assert not slow_nodes_by_class([canaries({})])["zen4"].named


def test_the_command_prints_verdicts_and_slow_nodes(tmp_path, capsys):
    path = tmp_path / "night.json"
    found = campaign(lambda *_: {EAGER: 1.0, XLA: 0.5})
    path.write_bytes(encode(found))

    assert cli.main(["fleet", "judge", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "faster" in printed
    assert "label-w1" in printed

    assert cli.main(["fleet", "judge", str(path), "--json"]) == 0
    [verdict] = json.loads(capsys.readouterr().out)["verdicts"]
    assert verdict["verdict"] == "faster"
    assert verdict["nodes"].keys() == {f"zen4-{node}" for node in NODES}


def test_the_command_takes_a_synonym_of_the_baseline(tmp_path, capsys):
    path = tmp_path / "night.json"
    path.write_bytes(encode(campaign(lambda *_: {EAGER: 1.0, XLA: 0.5}, nodes=NODES[:2])))
    assert cli.main(["fleet", "judge", str(path), "--baseline", "jax:xla", "--json"]) == 0
    [verdict] = json.loads(capsys.readouterr().out)["verdicts"]
    assert verdict["competitor"] == EAGER
    assert cli.main(["fleet", "judge", str(path), "--baseline", "tflite"]) == 1
    choices = f"--baseline 'tflite' is not among the competitors: {XLA}, {EAGER}"
    assert choices in capsys.readouterr().err


def test_the_command_reports_a_class_that_became_slower_by_its_exit_code(tmp_path, capsys):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_bytes(encode(campaign(lambda *_: {EAGER: 1.0, XLA: 1.0})))
    after.write_bytes(encode(campaign(lambda *_: {EAGER: 1.0, XLA: 1.5})))

    assert cli.main(["fleet", "judge", str(after), "--since", str(before)]) == 2
    assert "slower" in capsys.readouterr().out
