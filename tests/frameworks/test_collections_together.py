"""The suite's cases, TorchBench's folders and milabench's in one file, one page, one history."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import bench_support
import pytest

from comparative_benchmark.interop.milabench import config

pytestmark = pytest.mark.frameworks

DATA = Path(__file__).parents[1] / "data" / "torchbench"
QUICK = ("-w", "1", "-iter", "3", "--threads", "1")
NAMES = ["TOY_NONE", "guide_mlp_EVAL_PT", "bert", "pair", "nowhere"]


@pytest.fixture(scope="module")
def environment(session_environment):
    """Variables with a root of this session: the models are not the suite's."""
    return session_environment


def test_all_of_them_in_one_file_and_on_one_page(cbs_run, environment, tmp_path):
    def cbs(*arguments, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "comparative_benchmark", *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    models = tmp_path / "elsewhere" / "models"
    shutil.copytree(DATA / "guide_mlp", models / "guide_mlp")
    benches = tmp_path / "elsewhere" / "benchmarks"
    script = f'emit(task="train", loss=2.0)\n{bench_support.GOOD}'
    for name in ("bert", "pair"):
        bench_support.write(benches / name, script)
    lines = {"bert": [], "pair": ["plan: {method: njobs, n: 2}"], "nowhere": []}
    path = bench_support.configured(benches / "all.yaml", **lines)
    bench_support.installed(config.read(path), tmp_path / "base")

    def scripts():
        cbs("bench", "run", "--config", path, "--base", "base", "-o", "results.json", code=1)

    toys = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy")
    folders = ("--torchbench", str(models), "--backend", "pt_inductor:eager")
    assert cbs_run(*toys, "-name", "models/TOY_NONE/.+", *QUICK).code == 0
    assert cbs_run(*folders, *QUICK).code == 0
    scripts()
    results, first = tmp_path / "results.json", tmp_path / "first.json"
    shutil.copy(results, first)
    scripts()
    records = json.loads(results.read_text())["benchmarks"]
    assert [record["definition"]["model"] for record in records] == NAMES + NAMES[2:]

    shown = cbs("show", results)
    assert all(name in shown for name in ("toy", "guide_mlp", "100.5 items/s"))
    compared = cbs("compare", first, results, code=3)  # one failed in both
    assert all(name in compared for name in ("guide_mlp", "bert, time per item", "pair, time"))
    cbs("report", results, "-o", "page.html", "--baseline", first)
    page = (tmp_path / "page.html").read_text()
    assert all(f'"{name}' in page for name in ("guide_mlp", "bert, time per item"))
    assert '<section class="card" id="scripts"' in page
    # Paths stay private, unless --with-host is given.
    assert "--torchbench .../guide_mlp -t eval" in page
    assert f"--config .../{path.name} --select bert" in page
    cbs("history", "import", "results.json", "--db", "history.sqlite")
    listed = cbs("history", "ls", "--db", "history.sqlite")
    assert all(name in listed for name in ("guide_mlp", "bert, time per item", "toy"))
    assert "trends: 5, results: 8" in listed
