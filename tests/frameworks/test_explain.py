"""`cbs explain` on tiny BERT, eager against Inductor, from the profiles of both."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")


# Profiles that the run kept; or new ones, by workers of `cbs explain`.
@pytest.mark.parametrize("options", [(), pytest.param(("--again",), marks=pytest.mark.nightly)])
def test_eager_and_inductor_are_explained(column, environment, options):
    measured = column("pt_inductor")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "comparative_benchmark", "explain", str(measured.output)),
            *("pt_inductor:eager", "pt_inductor:inductor", "--json", *options),
            *("--workload", "bert"),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # The machine decides which one is slower.
    sides = {found[name]["competitor"]: found[name] for name in ("slow", "fast")}
    eager = sides["pt_inductor:eager"]["profile"]
    inductor = sides["pt_inductor:inductor"]["profile"]
    products = [each for each in eager["operators"] if each["flops"]]
    # Two layers of four projections, the feed-forward part, and attention.
    assert sum(each["flops"] for each in products) >= 2 * 2 * 32 * 128 * (4 * 128 + 2 * 512)
    if options:  # `cbs explain` compiles with names for its kernels
        assert any("cpp_fused" in each["name"] for each in inductor["operators"])
        assert inductor["fusions"]
        assert not inductor["remarks"]
    else:
        assert "`cbs explain --again` records one" in inductor["remarks"][0]
    assert all(side["cover"] > 0.1 for side in sides.values())
    assert found["lost_ms"] == pytest.approx(sum(row["lost_ms"] for row in found["rows"]))
