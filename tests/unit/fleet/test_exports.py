"""Exports of a fleet: valid files of other tools, whose results `collect` merges."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import fleet_doubles
import pytest
import yaml
from fleet_doubles import DESCRIPTION, units

from comparative_benchmark.cli.command import main
from comparative_benchmark.fleet import campaign, exports, node
from comparative_benchmark.fleet.spool import read_batch
from comparative_benchmark.results.results_file import read_document
from openxla.benchmark import installation


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(campaign, "units_of", lambda *_: units())
    monkeypatch.setattr(
        installation, "requirement", lambda names: f"suite[{names}] @ git+https://x@1"
    )
    return folder


@pytest.fixture
def export(project, capsys):
    """Writes a FLEET.toml and exports it; returns the exit code and the folder."""

    def export(target, *words, text=DESCRIPTION):
        (project / "FLEET.toml").write_text(text)
        image = ["--image", "registry/cbs:1"] if target == "kubernetes" else []
        code = main(["fleet", "export", "FLEET.toml", "--to", target, "-o", "out", *image, *words])
        return code, project / "out"

    return export


@pytest.mark.parametrize("target", ["reframe", "github", "kubernetes"])
def test_a_folder_has_all_batches_of_the_plan(export, target, capsys):
    code, folder = export(target)
    assert code == 0
    assert capsys.readouterr().out.endswith(f": 6 jobs for {target}\n")
    batches = [read_batch(path) for path in sorted((folder / "batches").iterdir())]
    assert [batch.name for batch in batches] == ["big.0", "big.1", "small.0"]
    assert {batch.engine for batch in batches} == {target}
    plan = json.loads((folder / "plan.json").read_bytes())
    planned = {job["key"] for job in plan["jobs"]}
    assert {work.key for batch in batches for work in batch.jobs} == planned
    assert (folder / "FLEET.toml").read_text() == DESCRIPTION


def parsed_check(folder):
    source = (folder / "fleet_check.py").read_text()
    compile(source, "fleet_check.py", "exec")
    found = {}
    for item in ast.parse(source).body:
        if isinstance(item, ast.ClassDef) and item.decorator_list:
            values = {}
            for line in item.body:
                value = line.value.args[0] if isinstance(line.value, ast.Call) else line.value
                values[line.targets[0].id] = ast.literal_eval(value)
            found[item.name] = values
    return found


def test_the_reframe_check_has_a_test_for_each_class(export):
    _, folder = export("reframe")
    found = parsed_check(folder)
    assert list(found) == ["Fleet0_small", "Fleet1_big"]
    assert found["Fleet1_big"] == {
        "descr": "fleet zoo, class big",
        "valid_systems": ["+cpu +avx512 -smt", "+gpu %arch=x86_64"],
        "exclusive_access": True,
        "time_limit": "7200s",
        "executable": sys.executable,
        "batch": ["big.0", "big.1"],
    }


def test_a_home_in_the_reframe_check_is_left_to_the_shell(export):
    text = DESCRIPTION.replace('"small"', '"small"\nenvironment = "~/my venv"')
    _, folder = export("reframe", text=text)
    assert parsed_check(folder)["Fleet0_small"]["executable"] == "~/'my venv/bin/python'"


def test_names_and_paths_of_the_reframe_check_are_quoted(export):
    text = DESCRIPTION.replace('"small"', '"a.b-c"\nshare = "gpu"\nenvironment = "/my \'venv"')
    _, folder = export("reframe", text=text.replace('requires = "+cpu"', ""))
    found = parsed_check(folder)["Fleet0_a_b_c"]
    assert found["executable"] == "'/my '\"'\"'venv/bin/python'"
    assert found["valid_systems"] == ["*"]
    assert found["exclusive_access"] is False


class _Core:
    """A small double of ReFrame's modules, to execute the check."""

    def __init__(self):
        self.tests = []
        self.RunOnlyRegressionTest = object

    def simple_test(self, test):
        self.tests.append(test)
        return test


def test_the_reframe_check_passes_if_all_results_exist(export, monkeypatch):
    _, folder = export("reframe")
    core, sanity, builtins = _Core(), type("", (), {}), type("", (), {})
    sanity.all, sanity.assert_true = staticmethod(all), staticmethod(lambda value, _: value)
    builtins.parameter, builtins.sanity_function = list, staticmethod(lambda function: function)
    builtins.run_before = staticmethod(lambda _: lambda function: function)
    core.utility, core.core = type("", (), {"sanity": sanity}), type("", (), {"builtins": builtins})
    modules = {"reframe": core, "reframe.utility": core.utility, "reframe.core": core.core}
    modules |= {"reframe.utility.sanity": sanity, "reframe.core.builtins": builtins}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    file = folder / "fleet_check.py"
    exec(compile(file.read_text(), str(file), "exec"), {"__file__": str(file), "__name__": "check"})
    small = next(test for test in core.tests if test.__name__ == "Fleet0_small")()
    [small.batch] = small.batch
    small.name_the_batch()
    assert small.executable_opts[-1] == str(folder / "batches" / "small.0.json")
    assert not small.all_jobs_have_results()
    for work in read_batch(folder / "batches" / "small.0.json").jobs:
        (folder / "results" / f"{work.key}.0.json").touch()
    assert small.all_jobs_have_results()


def test_features_with_other_names_are_refused_for_reframe(export, capsys):
    code, folder = export("reframe", text=DESCRIPTION.replace("+avx512", "+nvidia.com/gpu"))
    assert code == 1
    error = "cbs: class big: 'nvidia.com/gpu' is not a valid ReFrame feature\n"
    assert capsys.readouterr().err == error
    assert not folder.exists()


def test_the_github_workflow_is_valid_and_has_all_batches(export):
    _, folder = export("github")
    content = yaml.safe_load((folder / "workflow.yml").read_text())
    assert content["env"] == {"FLEET": "out", "SUITE": "suite[jax-xla] @ git+https://x@1"}
    measure, collect = content["jobs"]["measure"], content["jobs"]["collect"]
    assert measure["strategy"]["matrix"]["include"] == [
        {"batch": "small.0", "labels": ["self-hosted", "small"], "minutes": 90},
        {"batch": "big.0", "labels": ["self-hosted", "big"], "minutes": 150},
        {"batch": "big.1", "labels": ["self-hosted", "big"], "minutes": 150},
    ]
    assert collect["needs"] == "measure"
    # All actions are pinned, and no expression is part of a script.
    for step in (*measure["steps"], *collect["steps"]):
        assert re.fullmatch(
            r"actions/[a-z-]+@[0-9a-f]{40}", step.get("uses", "actions/a@" + "0" * 40)
        )
        assert "${{" not in step.get("run", "")
    tool = Path(sys.executable).with_name("check-jsonschema")
    if not tool.exists():
        pytest.skip("check-jsonschema is not installed")
    command = [tool, "--builtin-schema", "vendor.github-workflows", folder / "workflow.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_commands_of_the_github_workflow_are_valid(export):
    _, folder = export("github")
    scripts = re.findall(r"bin/cbs\" (fleet (?:.+\\\n)*.+)", (folder / "workflow.yml").read_text())
    assert len(scripts) == 2
    from comparative_benchmark.cli.command import parse

    for script in scripts:
        words = re.sub(r"\\\n", " ", script).replace('"', "").split()
        assert parse(words).command == "fleet"


def test_labels_of_runners_and_the_requirement_can_be_named(export):
    text = DESCRIPTION.replace('"small"', '"small"\naccess = ["ubuntu-24.04"]')
    _, folder = export("github", "--install", "suite @ git+https://y@2", text=text)
    content = yaml.safe_load((folder / "workflow.yml").read_text())
    assert content["env"]["SUITE"] == "suite @ git+https://y@2"
    assert content["jobs"]["measure"]["strategy"]["matrix"]["include"][0]["labels"] == [
        "ubuntu-24.04"
    ]


@pytest.mark.parametrize(
    ("words", "old", "new", "message"),
    [
        ([], '"small"', '"small"\naccess = ["-p", "bench"]', "'-p' is not a GitHub runner label"),
        ([], '"small"', '"small"\naccess = ["${{ x }}"]', "contains '${{' or an unprintable"),
        (["--install", "${{ x }}"], "", "", "contains '${{' or an unprintable"),
        ([], "repeats = 2", "repeats = 400", "401 batches exceed the limit of 256 for a GitHub"),
    ],
)
def test_fleets_that_github_cannot_run(export, capsys, words, old, new, message):
    code, folder = export("github", *words, text=DESCRIPTION.replace(old, new, 1))
    assert code == 1
    assert message in capsys.readouterr().err
    assert not folder.exists()


def test_a_copy_without_a_public_origin_needs_a_requirement(export, monkeypatch, capsys):
    monkeypatch.setattr(installation, "requirement", lambda _: None)
    assert export("github")[0] == 1
    message = "choose a revision with --install 'common-benchmark-suite[jax-xla] @ git+https://"
    assert message in capsys.readouterr().err


def kubernetes(folder):
    return list(yaml.safe_load_all((folder / "jobs.yaml").read_text()))


def test_kubernetes_jobs_are_indexed_by_batch(export):
    text = DESCRIPTION.replace('"small"', '"small"\naccess = ["cpu=62", "nvidia.com/gpu=8"]')
    _, folder = export("kubernetes", text=text)
    small, big = kubernetes(folder)
    spec = big["spec"]
    assert (small["kind"], small["apiVersion"]) == ("Job", "batch/v1")
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert spec["backoffLimitPerIndex"] == 2
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["activeDeadlineSeconds"]) == ("Never", 7200)
    [container] = pod["containers"]
    assert container["image"] == "registry/cbs:1"
    assert container["args"][-1] == "/fleet/batches/big.$(JOB_COMPLETION_INDEX).json"
    for index in range(2):
        assert (folder / "batches" / f"big.{index}.json").is_file()
    assert container["env"][0]["name"] == "CBS_FLEET_NODE"
    assert "resources" not in container
    [container] = small["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": "62", "nvidia.com/gpu": "8"}}
    comments = [line for line in (folder / "jobs.yaml").read_text().splitlines() if line[0] == "#"]
    assert "class small" not in "".join(comments).lower()
    assert "Class big lists no resources" in comments[1]


def test_requirements_become_labels_of_nodes(export):
    _, folder = export("kubernetes")
    small, big = (job["spec"]["template"]["spec"]["affinity"] for job in kubernetes(folder))
    assert "nodeAffinity" not in small  # every node has a CPU
    [terms] = big["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].values()
    assert [term["matchExpressions"] for term in terms] == [
        [
            {"key": "feature.node.kubernetes.io/cpu-cpuid.AVX512F", "operator": "Exists"},
            {
                "key": "feature.node.kubernetes.io/cpu-hardware_multithreading",
                "operator": "DoesNotExist",
            },
        ],
        [
            {"key": "gpu", "operator": "Exists"},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        ],
    ]


def test_pods_of_whole_nodes_avoid_all_others(export):
    _, folder = export("kubernetes", text=DESCRIPTION.replace('"big"', '"big"\nshare = "gpu"'))
    small, big = (job["spec"]["template"] for job in kubernetes(folder))
    [term] = small["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    [expression] = term["labelSelector"]["matchExpressions"]
    assert expression["operator"] == "Exists"
    # Pods that share nodes with each other stay away from whole nodes, too.
    assert expression["key"] in small["metadata"]["labels"]
    assert expression["key"] in big["metadata"]["labels"]
    assert "podAntiAffinity" not in big["spec"]["affinity"]


def test_names_of_kubernetes_jobs_are_short_and_differ(export):
    text = DESCRIPTION.replace('"small"', f'"A.{"x" * 37}-"').replace('"big"', f'"a.{"x" * 37}-"')
    _, folder = export("kubernetes", text=text)
    names = [job["metadata"]["name"] for job in kubernetes(folder)]
    assert len(set(names)) == 2
    for name in names:
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,52}[a-z0-9])?", name)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"small"', '"small"\naccess = ["-p"]', "access '-p' is not a Kubernetes resource"),
        (
            '"small"',
            '"small"\naccess = ["cpu=many"]',
            "access 'cpu=many' is not a Kubernetes resource",
        ),
        ("+avx512", "+a:b", "'a:b' is not a valid Kubernetes label"),
    ],
)
def test_fleets_that_kubernetes_cannot_run(export, capsys, old, new, message):
    code, folder = export("kubernetes", text=DESCRIPTION.replace(old, new, 1))
    assert code == 1
    assert message in capsys.readouterr().err
    assert not folder.exists()


def test_kubernetes_needs_an_image(project, capsys):
    Path("FLEET.toml").write_text(DESCRIPTION)
    assert main(["fleet", "export", "FLEET.toml", "--to", "kubernetes", "-o", "out"]) == 1
    assert "requires --image" in capsys.readouterr().err


def test_a_folder_with_files_is_left_alone(export, project, capsys):
    (project / "out").mkdir()
    (project / "out" / "notes").write_text("mine")
    assert export("reframe")[0] == 1
    assert capsys.readouterr().err == "cbs: out already exists; choose a new folder with -o\n"
    assert [path.name for path in (project / "out").iterdir()] == ["notes"]


def test_a_folder_that_cannot_be_made_is_reported(export, project, capsys):
    (project / "file").write_text("")
    assert export("reframe", "-o", "file/out")[0] == 1
    assert "file/out cannot be written: File exists" in capsys.readouterr().err


def test_targets_are_those_of_the_command_line(export, capsys):
    with pytest.raises(SystemExit):
        main(["fleet", "export", "FLEET.toml", "--to", "slurm", "-o", "out"])
    assert f"choices are {', '.join(exports.TARGETS)}" in capsys.readouterr().err


def test_results_of_exported_batches_are_collected(export, monkeypatch, capsys):
    _, folder = export("kubernetes")
    monkeypatch.setenv("CBS_FLEET_NODE", "k8s-7")
    fleet_doubles.fake_run(monkeypatch, node, fails=["w2"])
    collect = ["fleet", "collect", str(folder / "FLEET.toml"), "--exported", str(folder)]
    collect += ["-o", "merged.json"]
    assert main(["fleet", "node", str(folder / "batches" / "small.0.json")]) == 1
    capsys.readouterr()
    assert main(collect) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 new result: merged.json"
    failed = lines.pop(3)
    assert failed.startswith("missing: failed on k8s-7: w2 (small): cbs run exited with 1")
    assert lines[1:] == [
        "missing: waiting: w1 (big)",
        "missing: waiting: w1 (big, repeat 2)",
        "missing: waiting: w2 (big)",
        "missing: waiting: w2 (big, repeat 2)",
    ]
    [run] = read_document(Path("merged.json")).runs
    assert run.allocation.node == "k8s-7"
    assert run.allocation.engine == "kubernetes"


def test_a_fleet_is_complete_when_all_batches_ran(export, monkeypatch, capsys):
    _, folder = export("github")
    fleet_doubles.fake_run(monkeypatch, node)
    for path in sorted((folder / "batches").iterdir()):
        assert main(["fleet", "node", str(path)]) == 0
    capsys.readouterr()
    collect = ["fleet", "collect", "FLEET.toml", "--exported", str(folder), "-o", "merged.json"]
    assert main(collect) == 0
    assert capsys.readouterr().out == "6 new results: merged.json\n"
    assert main(collect) == 0
    assert capsys.readouterr().out == "0 new results, 6 already known: merged.json\n"


def test_a_folder_that_was_not_exported_is_reported(project, capsys):
    Path("FLEET.toml").write_text(DESCRIPTION)
    assert main(["fleet", "collect", "FLEET.toml", "--exported", "."]) == 1
    assert capsys.readouterr().err == "cbs: . has no plan; create one with `cbs fleet export`\n"
