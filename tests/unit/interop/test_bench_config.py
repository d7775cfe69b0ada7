"""milabench's YAML: its meaning, and its errors."""

import bench_support as support
import pytest
from fault_list import WRONG

from comparative_benchmark.cli.commands import bench as command
from comparative_benchmark.errors import UsageError
from comparative_benchmark.interop.milabench import config, inheritance, phases, workspace
from comparative_benchmark.interop.milabench.channel import Wishes
from comparative_benchmark.interop.milabench.config import ArgumentsError, Plan, assemble, filled
from comparative_benchmark.interop.milabench.measuring import best_factor
from comparative_benchmark.interop.milabench.workspace import Placement


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


def test_a_file_goes_over_what_it_includes(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yaml").write_text("""
_defaults: {enabled: false, voir: {options: {stop: 9}}}
_net: {inherits: _defaults, definition: ../net, tags: [t], argv: {--lr: 1}}
small: {inherits: _net, argv: {--size: 1}}
large: {inherits: _net, weight: 2}
""")
    found = by_name(
        read(
            tmp_path,
            """
include: [sub/base.yaml]
small: {enabled: true, argv: {--size: 3}}
_mine: {inherits: large, enabled: true}
sweep: {matrix: {n: [4, 5]}, job: {name: "of{n}", inherits: _mine, argv: {"n={n}": true}}}
gone: {enabled: false}
""",
        )
    )
    assert {name: bench.enabled for name, bench in found.items()} == {
        "small": True,
        "large": False,
        "of4": True,
        "of5": True,
    }
    assert found["small"].folder == found["of4"].folder == tmp_path / "net"
    assert found["small"].config["argv"] == {"--lr": 1, "--size": 3}
    assert found["small"].config["voir"]["options"] == {"stop": 9, "interval": "1s"}
    assert (found["of5"].config["argv"], found["of5"].weight) == ({"--lr": 1, "n=5": True}, 2.0)
    (tmp_path / "sub" / "base.yaml").write_text("net: {inherits: _defaults, plan: 3}\n")
    with pytest.raises(UsageError, match=r"sub/base\.yaml:1:28: unknown plan method"):
        read(tmp_path, "include: sub/base.yaml\nnet: {definition: x}\n")


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


def test_a_link_to_itself_is_no_configuration(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match=r"loop cannot be read: Too many levels of symbolic"):
        read(tmp_path, "include: loop")
    [bench] = read(tmp_path, "a: {definition: loop}")
    assert phases.do("run", Placement(base=tmp_path, bench=bench, run_name="r"), Wishes()).reason


def test_more_digits_than_python_converts_are_no_number(tmp_path):
    many = "9" * 5400
    conditions = f"requires_capabilities: [\"gpu['count'] > {many}\"]"
    [bench] = read(tmp_path, f"a: {{definition: x, {conditions}, argv: [auto_batch({many})]}}")
    assert "which cbs cannot evaluate" in bench.needs


def test_keys_of_a_benchfile_of_its_own_pass(tmp_path):
    [bench] = read(tmp_path, "a: {definition: x, my_own_thing: [1, 2.5, 'true', true, null]}")
    assert bench.config["my_own_thing"] == [1, 2.5, "true", True, None]


def test_what_a_benchmark_asks_of_the_machine_is_never_evaluated(tmp_path, monkeypatch):
    needs = {
        "num_machines: 2": "2 machines",
        'num_machines: 1, requires_capabilities: ["len(nodes) >= ${num_machines}"]': None,
        'requires_capabilities: ["len(nodes) > 1"]': "2 machines",
        "requires_capabilities: [\"__import__('os').abort()\"]": "which cbs cannot evaluate",
        "requires_capabilities: [\"gpu['count'] > 1\"]": None,
    }
    for text, said in needs.items():
        [bench] = read(tmp_path, f"a: {{definition: x, {text}}}")
        assert (bench.needs is None) if said is None else (said in bench.needs)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert workspace.unmet(bench) == "requires 2 or more GPUs, but this machine has 1"
    [bench] = read(tmp_path, "a: {definition: {git: 'https://example.org/a', branch: main}}")
    assert workspace.unmet(bench) == "requires https://example.org/a, which cbs does not fetch"


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
    with pytest.raises(UsageError, match=r"unknown benchmark, group or tag 'tt'; did you mean t\?"):
        names(["tt"])
    with pytest.raises(UsageError, match="no benchmark selected: all are excluded"):
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
    assert filled("expr({cpu_count} // 2 + min(3, 1))", {"cpu_count": "9"}) == "5"
    assert filled("workers=auto({n_worker}, 8)", {"n_worker": "3"}) == "workers=3"
    assert filled("n=expr(-2 * {x})", {"x": "4"}) == "n=-8"
    # As a configuration of torchtune has it: all of it is the key.
    tune = filled({"{code}/tune.py": True, "train.batch=auto_batch(8)": True}, {"code": "/c"})
    assert assemble(tune) == ["/c/tune.py", "train.batch=8"]
    with pytest.raises(ArgumentsError, match="by zero"):
        filled("expr(4 // {gpu_count})", {"gpu_count": "0"})
    with pytest.raises(ArgumentsError):
        assemble({"--a": {"b": 1}})


def test_a_batch_size_is_doubled_while_that_gains():
    tried = []

    def rate(factor):
        tried.append(factor)
        return {1: 100.0, 2: 150.0, 4: 151.0}.get(factor)

    assert best_factor(rate) == 2
    assert tried == [1, 2, 4]
    assert best_factor(lambda _: None) == 1
    assert best_factor(float) == 256
    assert filled("auto_batch(16)", {"batch_factor": "4"}) == "64"
    assert filled("auto({n}, 8)", {"batch_factor": "4", "n": "3"}) == "3"


def test_support_writes_what_reads(tmp_path):
    path = support.configured(tmp_path / "c.yaml", a=["weight: 3"], b=[])
    assert [bench.weight for bench in config.read(path)] == [3.0, 1.0]


def test_overrides_go_over_everything(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        """
_t: {inherits: _defaults, definition: x, argv: {--lr: 0.1}}
a: {inherits: _t, max_duration: 5}
b: {inherits: _t}
"""
    )

    def read_with(*texts):
        return by_name(config.read(path, inheritance.of_command_line(texts)))

    found = read_with("a.argv.--lr=0.5", "*.voir.options.stop=7", "_t.max-duration=9")
    assert [found[name].config["argv"]["--lr"] for name in "ab"] == [0.5, 0.1]
    assert {bench.config["voir"]["options"]["stop"] for bench in found.values()} == {7}
    assert [found[name].max_duration_s for name in "ab"] == [5.0, 9.0]
    assert read_with("a.install-variant=cuda")["a"].install_variant == "cuda"


def test_an_override_may_name_an_entry_with_dots(tmp_path):
    path = tmp_path / "c.yaml"
    names = ("net", "net.v1", "net.v1.5")
    path.write_text("".join(f"{name}: {{definition: x}}\n" for name in names))
    for name in names:
        over = inheritance.of_command_line([f"{name}.voir.options.stop=7", f"{name}.weight=3"])
        found = by_name(config.read(path, over))
        assert [n for n in names if found[n].weight == 3.0] == [name]
        stops = [found[n].config.get("voir", {}).get("options", {}).get("stop") for n in names]
        assert [n for n, stop in zip(names, stops, strict=True) if stop == 7] == [name]


def test_overrides_and_systems_that_cannot_be(tmp_path, planted):
    planted("an override without a target", "a system that is not one")
    path = tmp_path / "c.yaml"
    path.write_text(
        "net: {inherits: _defaults, definition: x}\n"
        "m: {matrix: {n: [32, 64]}, job: {name: 'm-{n}', definition: x}}\n"
    )
    for text, said in {
        "nett.weight=3": "did you mean net?",
        "net.wieght=3": "unknown key 'wieght'; did you mean weight?",
        "weight": "expected NAME.KEY=VALUE",
        "net.tags=[a]": "expected NAME.KEY=VALUE",
        "net.weight=heavy": "weight must be a number",
        "m.max_duration=5": "m is a matrix; override one of m-32, m-64",
        "no.such.weight=3": "unknown benchmark; choices are _defaults, net, m-32, m-64",
    }.items():
        with pytest.raises(UsageError) as caught:
            config.read(path, inheritance.of_command_line([text]))
        assert said in str(caught.value)
    system = tmp_path / "c.yaml.system"
    for text, said in {
        "system: {arhc: cuda}": ":1:10: unknown key 'arhc'; did you mean arch?",
        "arch: cuda": "expected the key 'system'",
        "system: {nodes: 3}": "nodes must be a list",
    }.items():
        system.write_text(text)
        with pytest.raises(UsageError) as caught:
            inheritance.of_system(system)
        assert said in str(caught.value)


def test_the_description_of_a_system_says_what_computes(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("MILABENCH_SYSTEM", raising=False)
    path = tmp_path / "c.yaml"
    argv = "argv: {--d: '{device_name}-{ccl}'}"
    path.write_text(f"net: {{inherits: _defaults, definition: x, {argv}}}\n")

    def said(**options):
        [bench] = command.benches(support.options(**{"config": path, **options}))
        return Placement(base=tmp_path, bench=bench, run_name="r").config()

    assert said()["argv"] == {"--d": "cpu-gloo"}
    (tmp_path / "c.yaml.system").write_text("system: {arch: rocm, sshkey: key}\n")
    found = said()
    assert found["argv"] == {"--d": "cuda-rccl"}
    assert (found["install_variant"], found["system"]["sshkey"]) == ("rocm", "key")
    assert found["system"]["nodes"][0]["ip"] == "127.0.0.1"
    other = tmp_path / "other.yaml"
    other.write_text("system: {arch: xpu, cloud_profiles: {}}\nmultirun: {runs: []}\n")
    assert said(system=other)["argv"] == {"--d": "xpu-ccl"}
    assert said(system=other, override=["*.system.arch=hpu"])["argv"] == {"--d": "hpu-hccl"}
    with pytest.raises(UsageError, match=r"c\.yaml:1:1: .*expr\(1 // 0\).*by zero"):
        said(override=["net.argv.--n=expr(1 // {gpu_count})"])
    [bench] = command.benches(support.options(config=path, use_current_env=True))
    assert bench.venv == workspace.current_venv()
