"""Which ceilings the report judges a result by."""

import datetime
import json
import re

import attrs
import pytest
from report_support import HOST, document, read, record

from comparative_benchmark.report.roofs import Cost, Roofs, as_json, peak_of
from comparative_benchmark.report.summary import summarize
from comparative_benchmark.roofline.ceilings import Ceilings, Copy, Gemm, save_ceilings

H100 = "NVIDIA H100 80GB HBM3"
# 1 flop in 1 ms would be 1e-6 GFLOP/s; the results below take about that.
COST = Cost(flops=1000.0, bytes=1.0, source="the model")
OF_CPU = Ceilings(
    cpu_model=HOST["cpu_model"],
    threads=HOST["threads"],
    date="2026-01-01T00:00:00+00:00",
    gemms=(Gemm(data_type="fp32", library="torch", version="1", size=64, gflops=2e-3),),
    copies=(Copy(threads=2, buffer_bytes=1, version="1", gb_per_s=1.0),),
)
OF_GPU = attrs.evolve(
    OF_CPU,
    gpu=H100,
    threads=None,
    gemms=tuple(
        Gemm(data_type=data_type, library="torch", version="1", size=64, gflops=gflops)
        for data_type, gflops in (("fp32", 4e-3), ("tf32", 1e-2))
    ),
    copies=(Copy(threads=None, buffer_bytes=1, version="1", gb_per_s=1.0),),
)


@pytest.fixture
def measured():
    """Results on the CPU, on the GPU in fp32 and in TF32, of a backend that cannot name it."""
    for one in (OF_CPU, OF_GPU):
        save_ceilings(one)
    programs = [
        ("host-cpu", {}),
        ("host-gpu", {"device_name": H100, "notes": {"tf32": False}}),
        ("host-gpu", {"device_name": H100, "notes": {"tf32": True}}),
        ("host-gpu", {"notes": "none"}),
        ("pixel-6-pro", {}),
    ]
    records = [
        record(f"w{index}", device=device, metrics={"program": program})
        for index, (device, program) in enumerate(programs)
    ]
    return read(document(*records))


@pytest.fixture
def results(measured):
    return measured.results


def test_each_result_is_judged_by_the_ceilings_of_its_device(results):
    roofs = Roofs(results)
    assert [roofs.of(result) for result in results] == [OF_CPU, OF_GPU, OF_GPU, OF_GPU, None]
    shares = [roofs.share(result, COST, 1.0) for result in results]
    assert shares == [
        pytest.approx(0.5), pytest.approx(0.25), pytest.approx(0.1), pytest.approx(0.25), None
    ]  # fmt: skip
    assert [peak_of(result) for result in results] == ["fp32", "fp32", "tf32", "fp32", "fp32"]


def test_the_plot_is_told_of_the_gpu():
    assert as_json(OF_GPU)["peaks"] == {"fp32": 4e-3, "tf32": 1e-2}
    assert (as_json(OF_GPU)["gpu"], as_json(OF_CPU)["gpu"]) == (H100, None)


def test_the_page_has_the_peak_of_each_case_that_is_not_of_its_type(measured):
    pytest.importorskip("jinja2", reason="the page needs the extra `report`")
    from comparative_benchmark.report import page

    html = page.render(summarize(measured), title="", made=datetime.datetime.now(datetime.UTC))
    data = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', html, re.DOTALL)[1])
    texts = [position if position is None else data["texts"][position]
             for position in data["cases"]["peak"]]  # fmt: skip
    assert texts == [None, None, "tf32", None, None]
    found = [position is not None and data["ceilings"][position]["gpu"]
             for position in data["cases"]["ceilings"]]  # fmt: skip
    assert found == [None, H100, H100, H100, False]
