"""Plans, environments and imports of benchfiles, in whole runs of small scripts."""

import os
import sys

import bench_support as support
import pytest

from comparative_benchmark.backends.host_settings import usable_cpus
from comparative_benchmark.cli.command import main
from comparative_benchmark.interop.milabench import config, phases, table
from comparative_benchmark.interop.milabench.processes import execution
from comparative_benchmark.results.record import Status
from comparative_benchmark.results.results_file import read_document

pytestmark = pytest.mark.slow

EMITS = f"""
{support.GOOD}
print("variables", json.dumps(dict(os.environ)))
print("cpus", sorted(os.sched_getaffinity(0)))
print("arguments", sys.argv[1:], os.getcwd())
"""


def test_jobs_run_at_once_on_cpus_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("MY_TOKEN", "secret")
    monkeypatch.setenv("MY_OWN", "thing")
    support.write(tmp_path / "a", EMITS)
    lines = ["plan: {method: njobs, n: 2}", 'argv: {--data: "{milabench_data}", --on: true}']
    base = tmp_path / "base"
    code, results = support.run(support.configured(tmp_path / "c.yaml", a=lines), base, repeat=2)
    assert code == 0
    throughput = results["a"].measured.throughput
    assert [(p.replicate, p.tag) for p in throughput.processes] == [
        (0, "a.0"),
        (0, "a.1"),
        (1, "a.0"),
        (1, "a.1"),
    ]
    # Simultaneous rates add up; each replicate is one sample of the interval.
    assert throughput.rate == pytest.approx(201, abs=1)
    assert throughput.rate_interval.processes == 2
    assert throughput.alone is None
    assert len(results["a"].measured.processes) == 2
    [folder, _] = sorted(base.glob("runs/2*"))
    found = {}
    for job in (0, 1):
        text = (folder / f"a.{job}.log").read_text()
        found[job] = dict(line.split(" ", 1) for line in text.splitlines())
    if len(usable_cpus()) > 1:
        assert found[0]["cpus"] != found[1]["cpus"]
    variables = found[0]["variables"]
    for name, value in {
        "MILABENCH_DATA_DIR": base / "data",
        "MILABENCH_DIR_DATA": base / "data",
        "MILABENCH_DIR_CODE": tmp_path / "a",
        "XDG_CACHE_HOME": base / "cache",
        "MILABENCH_BASE": base,
    }.items():
        assert f'"{name}": "{value}"' in variables
    assert '"MILABENCH_CONFIG": "{' in variables
    assert "MY_TOKEN" not in variables
    assert "MY_OWN" not in variables
    assert found[0]["arguments"] == f"['--data', '{base / 'data'}', '--on'] {tmp_path / 'a'}"


def test_environments_race_in_turns(tmp_path, capsys):
    fast = 'rates([100.0, 101.0] * 6 if "old" in os.environ["VIRTUAL_ENV"] else [50.0, 51.0] * 6)'
    support.write(tmp_path / "a", f"{fast}\nprint(time.time())")
    path = support.configured(tmp_path / "c.yaml", a=[])
    for name in ("old", "new"):
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
    both = f"old={tmp_path}/old,new={tmp_path}/new/bin/python"
    where = ("--config", str(path), "--base", str(tmp_path / "base"))
    run = ("bench", "run", *where, "--repeat", "3", "-o", str(tmp_path / "r.json"))
    assert main([*run, "--env", both]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines() if "items/s" in line] == [
        "a@old",
        "a@new",
    ]
    [told] = [line for line in shown.splitlines() if " x the speed of " in line]
    assert told.startswith("a@new: 0.50")
    assert told.endswith(" x the speed of a@old: slower")
    assert main(["bench", "compare", *[str(tmp_path / "r.json")] * 2]) == 0
    assert "(2 of 2 benchmarks compared)" in capsys.readouterr().out
    old, new = read_document(tmp_path / "r.json").benchmarks
    assert old.measured.throughput.rate == pytest.approx(100.5, abs=1)
    assert new.measured.throughput.rate == pytest.approx(50.5, abs=1)
    assert (old.definition.environment.name, new.definition.environment.name) == ("old", "new")
    assert old.definition.workload.digest == new.definition.workload.digest
    started = {
        float(log.read_text().split()[-1]): log.parent.name.split(".")[2]
        for log in (tmp_path / "base" / "runs").glob("*/*.log")
        if log.stat().st_size
    }
    assert [started[time] for time in sorted(started)] == ["old", "new", "new", "old", "old", "new"]
    assert main([*run, "--env", "old=/nowhere"]) == 1
    assert "no Python interpreter found" in capsys.readouterr().err
    assert main([*run, "--env", both, "--use-current-env"]) == 1
    assert "--env and --use-current-env cannot be combined" in capsys.readouterr().err


def test_what_jobs_take_from_each_other_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    # Two jobs run at three quarters of the rate of one. Each waits for the other one, and stays
    # until the other one has seen it.
    main = """
import pathlib
here, own = pathlib.Path(os.environ["MILABENCH_DIR_EXTRA"]), str(os.getpid())
def others(kind):
    return {path.name for path in (here / kind).iterdir()} - {own}
def wait(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
for kind in ("running", "seen"):
    (here / kind).mkdir(exist_ok=True)
(here / "running" / own).touch()
wait(lambda: others("running"), 2)
rivals = others("running")
(here / "seen" / own).touch()
print("cpus", len(os.sched_getaffinity(0)))
rates([(75.0 if rivals else 100.0) + i % 2 for i in range(12)])
wait(lambda: rivals <= others("seen"), 10)
(here / "running" / own).unlink()
"""
    support.write(tmp_path / "pair", main)
    lines = ["plan: {method: njobs, n: 2}"]
    path = support.configured(tmp_path / "c.yaml", pair=lines)
    code, results = support.run(path, tmp_path / "base", repeat=2, alone=True)
    assert code == 0, results["pair"].reason
    throughput = results["pair"].measured.throughput
    assert throughput.rate == pytest.approx(151, abs=1)
    alone = throughput.alone
    assert (alone.rate, alone.share) == pytest.approx((100.5, 75.5 / 100.5), rel=1e-4)
    assert alone.share_interval.processes == 2
    assert [process.replicate for process in alone.processes] == [0, 1]
    # The same CPUs as with the others: only the others differ.
    assert alone.processes[0].cpus == throughput.processes[0].cpus
    [remark] = [text for text in table.remarks([results["pair"]]) if "concurrent" in text]
    assert remark == "pair: each of 2 concurrent processes reaches 0.7512 of the solo rate"


def test_the_best_batch_size_is_found_by_running(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    # Larger is better, until there is no more memory.
    main = """
size = int(sys.argv[-1])
if size > 64:
    sys.exit("out of memory")
rates([size * 10.0 + i % 2 for i in range(12)])
"""
    support.write(tmp_path / "net", main)
    support.write(tmp_path / "fixed")
    lines = {"net": ["argv: {--bs: auto_batch(16)}"], "fixed": []}
    path = support.configured(tmp_path / "c.yaml", **lines)
    code, results = support.run(path, tmp_path / "base", auto_batch=True)
    assert code == 0
    assert results["net"].definition.model_parameters["--bs"] == "64"
    assert results["net"].measured.throughput.rate == pytest.approx(640.5)
    told = [line for line in capsys.readouterr().err.splitlines() if "batch size" in line]
    starts = [f"net: batch size x {factor}: " for factor in (1, 2, 4, 8)]
    assert all(map(str.startswith, told, starts))
    assert len(told) == len(starts)
    assert "out of memory" in told[-1]


def test_one_process_for_each_gpu_and_one_without(tmp_path, monkeypatch):
    support.write(tmp_path / "a", EMITS)
    path = support.configured(tmp_path / "c.yaml", a=["plan: {method: per_gpu}"])
    for visible, tags in (("3,5", ["a.D3", "a.D5"]), ("", ["a.D0"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        base = tmp_path / f"base{len(visible)}"
        code, results = support.run(path, base)
        assert code == 0
        assert [p.tag for p in results["a"].measured.throughput.processes] == tags
        if visible:
            [log] = base.glob("runs/2*/a.D5.log")
            assert '"CUDA_VISIBLE_DEVICES": "5"' in log.read_text()
            assert results["a"].definition.device == "host-gpu"


def test_what_benchfiles_of_real_folders_do(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    benchfile = """
from milabench.commands import (
    ActivatorCommand, CmdCommand, DockerRunCommand, ListCommand, PackCommand, SSHCommand,
    SequenceCommand, TorchRunCommand, VoidCommand,
)
from milabench.fs import XPath
from milabench.pack import Package
from milabench.utils import assemble_options, select_nodes


class Real(Package):
    main_script = "main.py"

    def make_env(self):
        return {**super().make_env(), "THREADS": str(self.resolve_argument("--threads", 1))}

    async def prepare(self):
        await super().prepare()
        await self.message("prepared", self.dirs.data)
        await self.python("-c", "print(7)")

    def build_run_plan(self):
        nodes = select_nodes(self.config["system"]["nodes"], self.config["num_machines"])
        script = TorchRunCommand(PackCommand(self, *self.argv, lazy=True))
        local = SSHCommand(
            executor=DockerRunCommand(script, self.config["system"].get("docker_image")),
            host=nodes[0]["ip"], user=nodes[0]["user"], key=None, port=nodes[0]["port"],
        )
        return ListCommand(local.use_stdout())


__pack__ = Real
"""
    folder = support.write(
        tmp_path / "a",
        f"""
{support.GOOD}
assert os.environ["THREADS"] == "4" and open(os.environ["MILABENCH_DATA_DIR"] + "/x").read()
""",
        benchfile=benchfile,
        prepare="""
import os, sys
open(os.environ["MILABENCH_DATA_DIR"] + "/x", "w").write(str(sys.argv))
""",
    )
    activated = support.write(
        tmp_path / "b",
        benchfile="""
from milabench.commands import ActivatorCommand
from milabench.pack import Package
class Activated(Package):
    def build_run_plan(self):
        return ActivatorCommand(self, use_stdout=True)
__pack__ = Activated
""",
    )
    # It has the mode of a file that was copied as text.
    support.write(
        tmp_path / "d",
        f"{support.GOOD}\nemit(task='early_stop', progress=[12, 12])\ntime.sleep(300)",
        benchfile="""
from milabench.executors import PackExecutor
from milabench.commands import AccelerateAllNodes, ActivatorCommand
from milabench.pack import Package
class Late(Package):
    def build_run_plan(self):
        return AccelerateAllNodes(ActivatorCommand(PackExecutor(self, lazy=True)))

    @property
    def working_directory(self):
        return self.dirs.code / "not_fetched"

    async def run(self):
        return await super().run()
__pack__ = Late
""",
    )
    script = activated / "activator"
    script.write_text('#!/bin/bash\n. "$1/bin/activate"\nexec python main.py\n')
    script.chmod(0o755)
    (folder / "own.txt").write_text("")
    path = support.configured(
        tmp_path / "c.yaml", a=["argv: {--threads: 4}"], b=[], d=["plan: {method: njobs, n: 2}"]
    )
    base = tmp_path / "base"
    benches = support.installed(config.read(path), base)
    assert phases.prepare(benches, base) == 0
    printed = capsys.readouterr().out
    assert "a: prepared" in printed
    assert "7" in printed
    monkeypatch.setattr(execution, "_AFTER_LAST_RATE_S", 0.1)
    code, results = support.run(path, base)
    assert code == 0, {name: result.reason for name, result in results.items()}
    assert {result.status for result in results.values()} == {Status.OK}
    assert [p.tag for p in results["d"].measured.throughput.processes] == ["d.0", "d.1"]


def test_steps_and_helpers_are_not_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    start = """
from milabench.commands import CmdCommand, ListCommand, SequenceCommand
from milabench.pack import Package

class Steps(Package):
    def build_run_plan(self):
        main = self.dirs.code / "main.py"
        first = CmdCommand(self, "touch", self.dirs.code / "made")
        helper = self.copy({"tag": [*self.config["tag"], "nolog"]})
        return SequenceCommand(
            first, ListCommand(CmdCommand(self, "python", main), CmdCommand(helper, "%s"))
        )

__pack__ = Steps
"""
    asserted = f"assert os.path.exists('made')\n{support.GOOD}"
    support.write(tmp_path / "good", asserted, benchfile=start % "true")
    support.write(tmp_path / "bad", asserted, benchfile=start % "false")
    lines = ["plan: {method: njobs, n: 1}"]
    path = support.configured(tmp_path / "c.yaml", good=lines, bad=lines)
    _, results = support.run(path, tmp_path / "base")
    assert results["good"].status is Status.OK, results["good"].reason
    assert [p.tag for p in results["good"].measured.throughput.processes] == ["good.0"]
    assert results["bad"].status is Status.FAILED
    assert "nolog" in results["bad"].reason


def test_prepare_has_the_network_and_run_has_none(tmp_path):
    ask = "print(__import__('os').readlink('/proc/self/ns/net'))"
    support.write(tmp_path / "a", f"{support.GOOD}\n{ask}", prepare=ask)
    base = tmp_path / "base"
    path = support.configured(tmp_path / "c.yaml", a=[])
    benches = support.installed(config.read(path), base)
    assert phases.prepare(benches, base) == 0
    code, results = support.run(path, base)
    assert code == 0
    [prepared] = base.glob("runs/prepare/a.prepare.log")
    [ran] = base.glob("runs/2*/a.D0.log")
    here = os.readlink("/proc/self/ns/net")  # noqa: PTH115  # no path, but a name
    assert prepared.read_text().strip() == here
    [process] = results["a"].measured.throughput.processes
    hidden = any("blocked through proxy variables" in note for note in process.notes)
    assert (ran.read_text().strip() != here) is not hidden
