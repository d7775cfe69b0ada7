"""milabench's YAML: what it says, and what cannot be."""

import bench_support as support
import pytest
from fault_list import WRONG

from comparative_benchmark.packages.milabench import config
from comparative_benchmark.packages.milabench.arguments import ArgumentsError, assemble, filled
from comparative_benchmark.packages.milabench.config import Plan
from comparative_benchmark.packages.milabench.placement import Placement
from comparative_benchmark.terminal.options import UsageError


def read(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return config.read(path)


def by_name(benches):
    return {bench.name: bench for bench in benches}


def test_a_chain_of_inheritance_merges_mappings_and_unites_tags(tmp_path):
    [bench] = read(
        tmp_path,
        """
_torch: {inherits: _defaults, definition: ../t, group: g, install_group: torch, tags: [b, a],
  argv: {--lr: 0.1, --epochs: 3}, voir: {options: {stop: 9}}}
mine: {inherits: _torch, tags: [c, a], argv: {--epochs: 5}, install-variant: unpinned, weight: 2}
""",
    )
    assert (bench.name, bench.group, bench.install_group) == ("mine", "g", "torch")
    assert bench.tags == ("a", "b", "c")
    assert bench.config["argv"] == {"--lr": 0.1, "--epochs": 5}
    assert bench.config["voir"]["options"] == {"stop": 9, "interval": "1s"}
    assert (bench.install_variant, bench.weight, bench.max_duration_s) == ("unpinned", 2.0, 600.0)
    assert bench.folder == (tmp_path / "../t").resolve()


def test_included_files_come_first_and_a_star_goes_over_all(tmp_path):
    (tmp_path / "base.yaml").write_text("_b: {inherits: _defaults, definition: x}\n")
    found = by_name(
        read(
            tmp_path,
            "include: base.yaml\none: {inherits: _b}\ntwo: {inherits: one}\n'*': {weight: 7}\n",
        )
    )
    assert {name: bench.weight for name, bench in found.items()} == {"one": 7.0, "two": 7.0}


def test_a_matrix_makes_a_benchmark_of_each_combination(tmp_path):
    found = by_name(
        read(
            tmp_path,
            """
m:
  matrix: {bs: [32, 64], t: [a]}
  job: {name: "m-{bs}-{t}", inherits: _defaults, definition: x, argv: {--bs: "{bs}"}}
""",
        )
    )
    assert list(found) == ["m-32-a", "m-64-a"]
    assert found["m-64-a"].config["argv"] == {"--bs": "64"}


def test_plans(tmp_path):
    text = "\n".join(
        f"b{i}: {{inherits: _defaults, definition: x{plan}}}"
        for i, plan in enumerate(("", ", plan: {method: per_gpu}", ", plan: {method: njobs, n: 3}"))
    )
    plans = [bench.plan for bench in read(tmp_path, text)]
    assert plans == [Plan(per_gpu=True), Plan(per_gpu=True), Plan(per_gpu=False, jobs=3)]


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_told_with_its_place(tmp_path, planted, name):
    planted(name)
    text, said = WRONG[name]
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert str(tmp_path / "c.yaml") in str(caught.value)


def test_keys_of_a_benchfile_of_its_own_pass(tmp_path):
    [bench] = read(tmp_path, "a: {definition: x, my_own_thing: [1, 2.5, 'true', true, null]}")
    assert bench.config["my_own_thing"] == [1, 2.5, "true", True, None]


def test_what_a_benchmark_asks_of_the_machine_is_never_evaluated(tmp_path):
    needs = {
        "num_machines: 2": "2 machines",
        'num_machines: 1, requires_capabilities: ["len(nodes) >= ${num_machines}"]': None,
        'requires_capabilities: ["len(nodes) > 1"]': "1 machines",
        "requires_capabilities: [\"__import__('os').abort()\"]": "which is not evaluated here",
    }
    for text, said in needs.items():
        [bench] = read(tmp_path, f"a: {{definition: x, {text}}}")
        assert (bench.needs is None) if said is None else (said in bench.needs)


def test_names_that_stand_for_paths_and_the_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    [bench] = read(
        tmp_path,
        """
a:
  definition: x
  install_variant: ${system.arch}
  argv: {--data: "{milabench_data}/d", --gpus: "{gpu_count}", --n: "${..weight}", --x: "{y}"}
  weight: 3
""",
    )
    found = Placement(base=tmp_path / "b", bench=bench, run_name="r").config()
    assert found["install_variant"] == "cuda"
    data = str(tmp_path / "b" / "data" / "d")
    assert found["argv"] == {"--data": data, "--gpus": "2", "--n": "3", "--x": "{y}"}


def test_selection_by_name_group_tag_and_folder(tmp_path, planted):
    planted("an unknown tag")
    benches = read(
        tmp_path,
        """
a: {definition: x, tags: [t], group: g}
b: {definition: y, install_group: i}
c: {definition: y, enabled: false}
""",
    )

    def names(select, exclude=()):
        return [bench.name for bench in config.select(benches, select, exclude)]

    assert names([]) == names(["*"]) == ["a", "b"]
    assert names(["t"]) == names(["g"]) == names(["x"]) == ["a"]
    assert names(["i", "a"]) == ["a", "b"]
    assert names([], ["t"]) == ["b"]
    with pytest.raises(UsageError, match=r"no benchmark, group or tag 'tt'; did you mean t\?"):
        names(["tt"])
    with pytest.raises(UsageError, match="no benchmark is left"):
        names(["a"], ["a"])


def test_arguments():
    argv = {"--a": 1, "--b": True, "--c": None, "--d": ["x", 2], "--": ["p", 3], "--e": "{data}/i"}
    assert assemble(argv) == ["--a", "1", "--b", "--d", "x,2", "--e", "{data}/i", "p", "3"]
    assert assemble(["-x", 1]) == ["-x", "1"]
    assert assemble(None) == []
    assert filled(argv, {"data": "/d"})["--e"] == "/d/i"
    assert filled("{unknown}", {}) == "{unknown}"
    assert filled("auto({n_worker}, 8)", {"n_worker": "3"}) == "3"
    assert filled("auto_batch(128)", {}) == "128"
    with pytest.raises(ArgumentsError):
        assemble({"--a": {"b": 1}})


def test_support_writes_what_reads(tmp_path):
    path = support.configured(tmp_path / "c.yaml", a=["weight: 3"], b=[])
    assert [bench.weight for bench in config.read(path)] == [3.0, 1.0]
