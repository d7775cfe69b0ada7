"""`cbs explain` on tiny BERT, eager against Inductor, through real workers."""

import json
import subprocess
import sys

import pytest
from tests_support import run_cbs

pytest.importorskip("torch")
pytestmark = pytest.mark.alone


def test_eager_and_inductor_are_explained(tmp_path, environment):
    measured = run_cbs(
        *("--backend", "pt_inductor:eager,pt_inductor:inductor", "--threads", "1"),
        *("-name", "models/BERT_TINY_FP32_PT_32XI32_BATCH1/.+DEFAULT", "-w", "2", "-iter", "5"),
        directory=tmp_path,
        environment=environment,
    )
    assert measured.code == 0, measured.err
    done = subprocess.run(
        [
            *(sys.executable, "-m", "comparative_benchmark", "explain", str(measured.output)),
            *("pt_inductor:eager", "pt_inductor:inductor", "--json"),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Which one is slower is the machine's to say.
    sides = {found[name]["competitor"]: found[name] for name in ("slow", "fast")}
    eager = sides["pt_inductor:eager"]["profile"]
    inductor = sides["pt_inductor:inductor"]["profile"]
    products = [each for each in eager["operators"] if each["flops"]]
    # Two layers of four projections, the feed-forward part, and attention.
    assert sum(each["flops"] for each in products) >= 2 * 2 * 32 * 128 * (4 * 128 + 2 * 512)
    assert any("cpp_fused" in each["name"] for each in inductor["operators"])
    assert inductor["fusions"]
    assert not inductor["remarks"]
    assert all(side["cover"] > 0.1 for side in sides.values())
    assert found["lost_ms"] == pytest.approx(sum(row["lost_ms"] for row in found["rows"]))
