"""The JSON that `iree-benchmark-module` really writes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from formats_support import validate

from comparative_benchmark.reporting.formats.interface import (
    detect,
    importer,
    read_file,
    read_source,
)
from comparative_benchmark.reporting.history.database import rows_of

pytestmark = pytest.mark.frameworks

PROGRAM = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %sum = arith.addf %a, %a : tensor<4xf32>
  return %sum : tensor<4xf32>
}
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    compiler = pytest.importorskip("iree.compiler")
    tool = shutil.which("iree-benchmark-module", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("iree-benchmark-module is not installed next to this interpreter")
    folder = tmp_path_factory.mktemp("iree")
    module = folder / "m.vmfb"
    module.write_bytes(
        compiler.compile_str(
            PROGRAM, target_backends=["llvm-cpu"], extra_args=["--iree-llvmcpu-target-cpu=host"]
        )
    )
    done = subprocess.run(
        [
            *(tool, f"--module={module}", "--device=local-sync", "--function=main"),
            *("--input=4xf32=1", "--benchmark_repetitions=3", "--benchmark_min_time=0.01s"),
            "--benchmark_format=json",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    path = folder / "iree.json"
    path.write_text(done.stdout)
    return path


def test_its_json_is_what_the_schema_says(written):
    validate(json.loads(written.read_text()), "google-benchmark.schema.json")


def test_its_json_is_imported(written):
    source = read_source(written)
    assert detect(source) == "google-benchmark"
    imported = importer("auto")(source)
    assert imported.refused == ()
    [result] = imported.results
    assert "main" in result.case
    assert len(result.extra["repetitions_ms"]) == 3
    assert 0 < result.latency_ms < 1e3
    assert result.latency_ms == sorted(result.extra["repetitions_ms"])[1]
    assert result.timestamp is not None
    [[row], _] = rows_of(written, read_file(written))
    assert row.source == "google-benchmark"


def test_the_schema_can_fail(written):
    document = json.loads(written.read_text())
    del document["benchmarks"][0]["real_time"]
    with pytest.raises(jsonschema.ValidationError):
        validate(document, "google-benchmark.schema.json")
