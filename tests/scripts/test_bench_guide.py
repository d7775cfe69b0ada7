"""milabench's guide to a new benchmark, word for word, in a copy of the repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from comparative_benchmark.results.results_file import read_document

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the files that the guide uses."""
    tmp_path = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "benchmarks" / "_template", tmp_path / "benchmarks" / "_template")
    return tmp_path


def shell(clone, text, *, code=0):
    """Runs lines of the guide in a shell that has the shim; returns what they print."""
    script = f'set -e\neval "$({sys.executable} -m comparative_benchmark bench shim)"\n{text}'
    env = {**os.environ, "CBS_ROOT_DIR": str(clone / "root"), "SHELL": "/bin/bash"}
    for name in ("MILABENCH_BASE", "MILABENCH_CONFIG"):
        env.pop(name, None)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=clone,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_guide_word_for_word(clone):
    shell(clone, "cp-template benchmarks/_template/ benchmarks/ornatebench")
    folder = clone / "benchmarks" / "ornatebench"
    files = ("README.md", "benchfile.py", "main.py", "prepare.py", "requirements.in")
    assert {*files, "voirfile.py", "dev.yaml"} == {path.name for path in folder.iterdir()}
    assert os.access(folder / "prepare.py", os.X_OK)

    printed = shell(
        clone,
        """
    # You can also use --config
    export MILABENCH_CONFIG=benchmarks/ornatebench/dev.yaml

    milabench install
    milabench prepare
    milabench run
    """,
    )
    assert "ornatebench: installed" in printed
    assert "ornatebench: prepared" in printed
    assert "PASS" in printed
    [result] = read_document(clone / "root" / "milabench" / "results.json").benchmarks
    throughput = result.measured.throughput
    print(f"rate {throughput.rate:.1f} {throughput.units}, wall {result.wall_s} s")
    # 64 items in 0.1 s, plus the delay of a sleep: 635-640 on a quiet machine.
    assert 400 < throughput.rate <= 640
    [process] = throughput.processes
    assert len(process.rates) >= 12
    assert process.losses[0] == 1.0
    assert not process.notes
    assert result.wall_s > process.wall_s

    again = shell(clone, "milabench install --config benchmarks/ornatebench/dev.yaml")
    assert "already installed" in again
    told = shell(
        clone,
        "milabench dev --config benchmarks/ornatebench/dev.yaml"
        " <<< 'voir --dash --stop 2 main.py; echo left with $?'",
    )
    assert "left with 0" in told
    assert "loss" in told


# Like the folders torchvision and flops: probes on a script that does not use voir,
# losses that wait for the device, and a script that reports by escapes in its output.
OBSERVED = """
from dataclasses import dataclass
from benchmate.monitor import voirfile_monitor
from benchmate.observer import BenchObserver
from voir import configurable

@dataclass
class Config:
    dash: bool = False
    interval: str = "1s"
    skip: int = 5
    stop: int = 20
    gpu_poll: int = 3

@configurable
def instrument_main(ov, options: Config):
    yield ov.phases.init
    voirfile_monitor(ov, options)
    yield ov.phases.load_script
    observer = BenchObserver(
        earlystop=options.stop + options.skip, raise_stop_program=True, batch_size_fn=len
    )
    probe = ov.probe("//train() > loader", overridable=True)
    probe["loader"].override(observer.loader)
    probe = ov.probe("//train() > criterion", overridable=True)
    probe["criterion"].override(observer.criterion)
"""
KNOWS_NOTHING = """
import time

class Loss(float):
    def detach(self):
        return self
    def item(self):
        return float(self)

def train():
    loader = [list(range(32)) for _ in range(200)]
    criterion = lambda batch: Loss(1 / len(batch))
    for batch in loader:
        time.sleep(0.05)
        criterion(batch)

if __name__ == "__main__":
    train()
"""
BY_ESCAPES = """
import time
from benchmate.monitor import bench_monitor

with bench_monitor(poll_interval=0.2) as log:
    for i in range(12):
        time.sleep(0.02)
        log({"task": "train", "rate": 42.0 + i % 2, "units": "Tflops"})
        print("step", i)
"""

# Steps of two batches each, and other imports of scripts. Reports are written at once, as a
# monitor's thread writes, too.
STEPPED = """
import sys
import time
from benchmate.common import setupvoir
from benchmate.metrics import ManualTimedIterator, sumggle_push
from benchmate.observer import BenchObserver
from benchmate.progress import tqdm
from benchmate.timings import StepTimer
from benchmate.toggles import get_observation_count
from benchmate.ux import long_action

observer = BenchObserver(earlystop=get_observation_count(6), batch_size_fn=len, stdout=True)
with long_action("waiting"):
    for number, batch in enumerate(observer.iterate([[0] * 8] * 40, custom_step=True)):
        time.sleep(0.01)
        if number % 2:
            observer.record_loss(0.5)
            observer.step()
assert isinstance(observer.original_dataloader(), ManualTimedIterator)
timer = StepTimer(lambda **told: print(told))
for _ in tqdm(range(2)):
    timer.step(3)
    timer.end()

class Counted:
    writes = 0
    def write(self, text):
        self.writes += 1
        return sys.__stdout__.write(text)

counted = sys.stdout = Counted()
log, _ = setupvoir(enabled=False)
log({"task": "main", "value": 1})
sumggle_push()(task="main", value=2)
sys.stdout = sys.__stdout__
assert counted.writes == 2, counted.writes
"""


def test_scripts_of_real_folders_on_real_voir(clone):
    benches = clone / "benchmarks"
    scripts = {"observed": KNOWS_NOTHING, "escapes": BY_ESCAPES, "stepped": STEPPED}
    for name, main in scripts.items():
        folder = benches / name
        folder.mkdir()
        (folder / "main.py").write_text(main)
        (folder / "requirements.in").write_text("voir\n")
        plan = (
            ""
            if name == "observed"
            else (
                "    def build_run_plan(self):\n"
                "        main = self.dirs.code / self.main_script\n"
                "        return CmdCommand(self, 'python', main, use_stdout=True)\n"
            )
        )
        (folder / "benchfile.py").write_text(
            "from milabench.commands import CmdCommand\nfrom milabench.pack import Package\n"
            f"class Bench(Package):\n    prepare_script = None\n{plan}__pack__ = Bench\n"
        )
    (benches / "observed" / "voirfile.py").write_text(OBSERVED)
    (benches / "real.yaml").write_text(
        "".join(
            f"{name}: {{inherits: _defaults, definition: {name}, install_group: ornatebench,"
            f" install_variant: unpinned, voir: {{options: {{stop: {stop}}}}}}}\n"
            for name, stop in (("observed", 20), ("escapes", 12), ("stepped", 6))
        )
    )
    shell(
        clone,
        "export MILABENCH_CONFIG=benchmarks/real.yaml\nmilabench install\n"
        "milabench run --base root/milabench -o real.json",
    )
    found = {r.definition.model: r for r in read_document(clone / "real.json").benchmarks}
    observed, escapes = (found[n].measured.throughput for n in ("observed", "escapes"))
    assert 400 < observed.rate <= 640
    assert observed.processes[0].losses == (1 / 32, 1 / 32)
    assert (escapes.rate, escapes.units) == (42.5, "Tflops")
    stepped = found["stepped"].measured.throughput
    # 16 items in at least 20 ms; fewer than eight rates are taken unfiltered.
    assert 0 < stepped.rate <= 800
    assert (len(stepped.processes[0].rates), stepped.processes[0].losses) == (6, (0.5, 0.5))
    assert not list(benches.glob("*/__pycache__"))


def test_pin_writes_a_lock(clone):
    folder = clone / "benchmarks" / "pinned"
    shell(clone, "cp-template benchmarks/_template/ benchmarks/pinned")
    (folder / "requirements.in").write_text("pyyaml\n")
    export = "export MILABENCH_CONFIG=benchmarks/pinned/dev.yaml\n"
    refused = shell(clone, f"{export} milabench pin --select pinned --variant unpinned", code=1)
    assert "has no lock" in refused
    shell(clone, f"{export} milabench pin --select pinned --variant cuda")
    lock = (folder / "requirements.cuda.txt").read_text()
    assert "pyyaml==" in lock
    assert str(clone) not in lock
    assert "unknown benchmark, group or tag 'pined'; did you mean pinned?" in shell(
        clone, f"{export} milabench pin --select pined --variant cuda", code=1
    )


def test_new_writes_what_cp_template_does(clone):
    shell(clone, "cp-template benchmarks/_template/ benchmarks/twin")
    shell(clone, f"{sys.executable} -m comparative_benchmark bench new twin --directory made")
    for path in (clone / "benchmarks" / "twin").iterdir():
        made = clone / "made" / "twin" / path.name
        assert made.read_text() == path.read_text()
        assert os.access(made, os.X_OK) == os.access(path, os.X_OK)
    assert "already exists; choose another name" in shell(
        clone, f"{sys.executable} -m comparative_benchmark bench new twin --directory made", code=1
    )
