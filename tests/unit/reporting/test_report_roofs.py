"""Which ceilings the report judges a result by."""

import attrs
import pytest
from report_support import HOST, document, read, record

from comparative_benchmark.analysis.roofline.ceilings import Ceilings, Copy, Gemm, save_ceilings
from comparative_benchmark.reporting.report import page
from comparative_benchmark.reporting.report.summary import summarize

H100 = "NVIDIA H100 80GB HBM3"
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
        ("host-gpu", {}),
        ("pixel-6-pro", {}),
    ]
    records = [
        record(f"w{index}", device=device, metrics={"program": program})
        for index, (device, program) in enumerate(programs)
    ]
    return read(document(*records))


def test_each_result_is_judged_by_the_ceilings_of_its_device(measured):
    data = page.build(summarize(measured))
    found = [position is not None and data["ceilings"][position]["gpu"]
             for position in data["cases"]["ceilings"]]  # fmt: skip
    assert found == [None, H100, H100, H100, False]
    # The thousand operations of each take a millisecond: 1e-3 GFLOP/s.
    shares = [0.5, 0.25, 0.1, 0.25]
    assert data["cases"]["share"] == [*(pytest.approx(share, rel=0.01) for share in shares), None]
    texts = [position if position is None else data["texts"][position]
             for position in data["cases"]["peak"]]  # fmt: skip
    assert texts == [None, None, "tf32", None, None]


def test_the_plot_is_told_of_the_gpu():
    assert page.as_json(OF_GPU)["peaks"] == {"fp32": 4e-3, "tf32": 1e-2}
    assert (page.as_json(OF_GPU)["gpu"], page.as_json(OF_CPU)["gpu"]) == (H100, None)
