"""Live display, choice of the installer, and the shell's shim."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import bench_support as support
import pytest

from comparative_benchmark.errors import UsageError
from comparative_benchmark.interop.milabench import channel, config, phases, template, workspace
from comparative_benchmark.interop.milabench.channel import PhaseOutcome
from comparative_benchmark.interop.milabench.processes import execution
from comparative_benchmark.interop.milabench.processes.execution import Ended
from comparative_benchmark.interop.milabench.processes.observed import ForeignCpu, Observed
from comparative_benchmark.interop.milabench.table import Dash
from comparative_benchmark.interop.milabench.workspace import Placement
from comparative_benchmark.results.record import Status

TEMPLATE = Path(__file__).parents[3] / "benchmarks" / "_template"


def test_the_dash_shows_rate_loss_progress_and_device(capsys):
    seen = Observed()
    with Dash("short", "b") as dash:
        for event in (
            {"task": "train", "rate": 637.5, "units": "items/s"},
            {"task": "train", "loss": 0.25},
            {"task": "train", "progress": [3, 100]},
            {"task": "main", "gpudata": {"0": {"memory": [512, 1024], "load": 0.5}}},
        ):
            seen.take(event)
            dash.listen("b.D0", seen)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "b.D0: 637.5 items/s, loss 0.25, progress 3/100, device 512 MB 50%"
    with Dash("no", "b") as dash:
        dash.listen("b.D0", seen)
    assert capsys.readouterr().err == ""


def test_uv_is_taken_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(
        workspace.shutil, "which", lambda name: f"/bin/{name}" if name == "uv" else None
    )
    python = str(tmp_path / "bin" / "python")
    assert workspace.install_command(tmp_path, ["-r", "x"]) == [
        *("/bin/uv", "pip", "install", "--compile-bytecode", "--python", python, "-r", "x")
    ]
    assert workspace.compile_command(tmp_path, ["-o", "y", "x"]) == [
        *("/bin/uv", "pip", "compile", "--quiet", "-o", "y", "x")
    ]
    monkeypatch.setattr(workspace.shutil, "which", lambda _: None)
    assert workspace.install_command(tmp_path, ["x"]) == [
        *(sys.executable, "-P", "-m", "pip", "--python", python, "install", "x")
    ]


def test_an_environment_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(workspace.VenvError, match="cannot create"):
        workspace.make_venv(tmp_path / "file" / "venv")


def test_an_environment_is_removed_if_its_creation_is_interrupted(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        (tmp_path / "venv" / "bin").mkdir(parents=True)
        (tmp_path / "venv" / "bin" / "python").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(workspace.subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        workspace.make_venv(tmp_path / "venv")
    assert not (tmp_path / "venv").exists()


@pytest.fixture
def placement(tmp_path):
    support.write(tmp_path / "a")
    [bench] = config.read(support.configured(tmp_path / "c.yaml", a=[]))
    return Placement(base=tmp_path / "base", bench=bench, run_name="r")


COMMAND = {"argv": ["x"], "cwd": "", "env": {}, "use_stdout": False, "measured": True}
COMMAND |= {"tag": "t", "devices": []}


def test_a_killed_supervisor_installs_nothing(placement, monkeypatch):
    killed = Ended(tag="t", observed=Observed(), log_file=placement.base, reason="it was killed")
    monkeypatch.setattr(phases.execution, "run", lambda *_, **__: [killed])
    outcome = phases.add_packages(placement, ["voir"])
    assert (outcome.status, outcome.reason) == (Status.FAILED, "cannot install voir: it was killed")


@pytest.mark.parametrize(
    "commands",
    [
        "7",
        "[7]",
        "[{}]",
        json.dumps([{**COMMAND, "argv": []}]),
        json.dumps([{**COMMAND, "env": 7}]),
    ],
)
def test_a_benchfile_gets_an_answer_to_an_invalid_request(placement, commands):
    outcome = PhaseOutcome()
    asked = channel.Channel("run", placement, channel.Wishes(), outcome)
    answers, asked._answers = os.pipe()
    asked._take(b'{"type": "execute", "commands": %s}\n' % commands.encode())
    os.close(asked._answers)
    assert outcome.status is Status.FAILED
    assert outcome.reason.startswith("benchfile.py sent invalid data: ")
    with os.fdopen(answers, "rb") as file:
        assert file.read() == b'{"codes": []}\n'


def test_a_benchfile_that_ends_without_reading_its_answer_costs_itself(placement, monkeypatch):
    asked = channel.Channel("run", placement, channel.Wishes(), PhaseOutcome())
    monkeypatch.setattr(asked, "_execute", lambda _: [0])
    answers, asked._answers = os.pipe()
    os.close(answers)
    asked._take(b'{"type": "execute", "commands": []}\n')
    os.close(asked._answers)


def test_nested_data_of_a_benchfile_costs_itself(placement):
    outcome = PhaseOutcome()
    asked = channel.Channel("run", placement, channel.Wishes(), outcome)
    asked._take(b"[" * 100_000 + b"\n")
    assert outcome.reason.startswith("benchfile.py sent invalid data: RecursionError")


def test_variables_of_a_command_are_in_no_command_line(tmp_path):
    # Together longer than Linux allows for one argument.
    secrets = {f"SECRET_{number}": "hidden" * 10_000 for number in range(3)}
    command = execution.CommandLine(
        argv=("/bin/sh", "-c", "cat /proc/$PPID/cmdline; echo ${#SECRET_2}"),
        cwd=str(tmp_path),
        env={"PATH": os.environ["PATH"], **secrets},
        tag="t",
    )
    limits = execution.Limits(duration_s=60, network=True, disk=tmp_path)
    [ended] = execution.run([command], limits=limits, log_dir=tmp_path / "logs")
    log = ended.log_file.read_text()
    assert ended.code == 0, log
    assert "supervisor.py" in log
    assert "hidden" not in log
    assert "60000" in log


def test_a_link_to_itself_leads_nowhere_else(placement):
    (placement.bench.folder / "loop").symlink_to("loop")
    assert phases._folder_problem(placement.bench.folder) is None
    (placement.bench.folder / "out").symlink_to("/etc")
    assert "links to a path outside" in phases._folder_problem(placement.bench.folder)


def test_the_shim_is_a_function_of_one_shell(tmp_path):
    real = tmp_path / "milabench"
    real.write_text("#!/bin/sh\necho real\n")
    real.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f"milabench; {template.shim()}\nmilabench --help | head -1"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("real\nusage: cbs bench")


# The first commands of milabench's guide, up to those that need packages.
GUIDE = """
cp-template benchmarks/_template/ benchmarks/ornatebench

# You can also use --config
export MILABENCH_CONFIG=benchmarks/ornatebench/dev.yaml

milabench report --help | head -1
"""


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize("place", ["checkout", "elsewhere"])
def test_the_guide_starts_with_a_copy_of_the_template(tmp_path, shell, place):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    if place == "checkout":
        own = tmp_path / "benchmarks" / "_template"
        shutil.copytree(TEMPLATE, own)
        (own / "data").mkdir()
        (own / "data" / "{{STEM}}.bin").write_bytes(b"\xff{{STEM}}\x00")
    cbs = f"{sys.executable} -m comparative_benchmark"
    done = subprocess.run(
        [shell, "-c", f'set -e\neval "$({cbs} bench shim)"\n{GUIDE}'],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage: cbs bench report" in done.stdout
    made = tmp_path / "benchmarks" / "ornatebench"
    names = {path.name for path in TEMPLATE.iterdir() if path.is_file()}
    assert {path.name for path in made.iterdir() if path.is_file()} == names
    assert (made / "dev.yaml").read_text().startswith("ornatebench:\n")
    assert not any(b"{{STEM}}" in p.read_bytes() for p in made.rglob("*") if p.is_file())
    assert os.access(made / "prepare.py", os.X_OK)
    if place == "checkout":
        assert (made / "data" / "ornatebench.bin").read_bytes() == b"\xffornatebench\x00"


def test_a_real_cp_template_and_a_plain_shell_keep_what_they_have(tmp_path):
    real = tmp_path / "cp-template"
    real.write_text("#!/bin/sh\necho the real one\n")
    real.chmod(0o755)
    for shell in ("bash", "dash"):
        if shutil.which(shell) is None:
            continue
        done = subprocess.run(
            [shell, "-c", f"{template.shim()}\ncp-template a b"],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "the real one\n"


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("nowhere", "new", "nowhere is not a folder; copy benchmarks/_template"),
        ("own", "there", "there already exists; choose another name"),
        ("own", "own/new", "is inside the template"),
        ("own", "a b", "invalid benchmark name 'a b'"),
        ("own", "there/new/deep", "cannot write"),
    ],
)
def test_a_template_that_cannot_be_copied_is_one_line(tmp_path, monkeypatch, source, target, words):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(TEMPLATE, "own")
    Path("there").touch()
    with pytest.raises(UsageError, match=words):
        list(template.copy(Path(source), Path(target)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["own", "there"]


@pytest.mark.parametrize("name", ["../a", "", "a b", "-x"])
def test_names_that_no_benchmark_has(name, tmp_path):
    with pytest.raises(UsageError, match="invalid benchmark name"):
        list(template.write(name, tmp_path))


def test_cpu_time_of_others(tmp_path):
    stat = tmp_path / "proc" / "stat"
    stat.parent.mkdir()
    text = Path("/proc/stat").read_text()
    stat.write_text(text)
    counter = ForeignCpu(tmp_path)
    assert counter.share(0.0) == 0.0
    lines = [line.split() for line in text.splitlines()]
    more = [[*w[:1], str(int(w[1]) + 10**6), *w[2:]] if w[0][:3] == "cpu" else w for w in lines]
    stat.write_text("\n".join(" ".join(words) for words in more))
    assert counter.share(0.0) > 1000
    assert counter.share(1e9) == 0.0
    stat.unlink()
    assert counter.share(0.0) is None


def test_commands_of_real_benchfiles(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(workspace.HOST_PATH))
    commands, packs = map(importlib.import_module, ("milabench.commands", "milabench.pack"))
    (tmp_path / "main.py").write_text("")
    config = {"name": "b", "definition": str(tmp_path), "plan": {"method": "njobs"}, "argv": ["-x"]}
    names = ("base", "code", "venv", "data", "runs", "extra", "cache")
    dirs = {name: str(tmp_path / name) for name in names}
    pack = packs.Package({**config, "tag": ["b"], "dirs": dirs})
    main = str(tmp_path / "main.py")
    script = commands.PackCommand(pack, lazy=True)
    voir = commands.VoirCommand(script, module=True)

    def argv(command, devices):
        gpus = [{"device": str(number)} for number in range(devices)]
        [(_, found, _)] = commands.NJobs(command, 1, gpus).commands()
        return list(map(str, found))

    assert argv(commands.TorchrunAllNodes(script).use_stdout(), 1) == ["python", main, "-x"]
    launched = ["torchrun", "--nproc-per-node=2"]
    assert argv(commands.TorchrunAllNodes(script), 2) == [*launched, "--", main, "-x"]
    assert argv(commands.TorchRunCommand(voir, module=True), 2) == [
        *(*launched, "--no-python", "--", "voir", main, "-x")
    ]
    assert argv(commands.AccelerateAllNodes(voir), 1) == ["voir", main, "-x"]
    many = argv(commands.AccelerateAllNodes(voir), 2)
    assert many[:2] == ["accelerate", "launch"]
    assert many[-4:] == ["--no_python", "voir", main, "-x"]

    class Tune(commands.TorchrunAllGPU):
        executable = "tune"

        def should_wrap(self):
            return True

    nodes = commands.WorkingDir(Tune(commands.SimpleCommand(pack, "y")))
    assert argv(nodes, 0) == ["tune", "--nproc-per-node=1", "-m", "--", "-x", "y"]


def test_a_benchfile_fetches_a_repository(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(workspace.HOST_PATH))
    paths, milabench = map(importlib.import_module, ("milabench.fs", "milabench"))
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.py").write_text("1")
    (source / "b.py").write_text("2")
    git = ["git", "-C", str(source), "-c", "user.name=n", "-c", "user.email=e"]
    for action in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "m"]):
        subprocess.run([*git, *action], check=True)
    whole, part = paths.XPath(tmp_path / "whole"), paths.XPath(tmp_path / "part")
    whole.clone_subtree(str(source), "main")
    part.clone_subtree(str(source), "main", "sub")
    assert sorted(p.name for p in whole.iterdir()) == ["b.py", "sub"]
    whole.merge_into(part, manifest="/b.py\n")
    assert sorted(p.name for p in part.iterdir()) == ["a.py", "b.py"]
    with pytest.raises(milabench.CommandFailedError, match="git clone: fatal"):
        whole.clone_subtree(str(tmp_path / "none"), "main")
