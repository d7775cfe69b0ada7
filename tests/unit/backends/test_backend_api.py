"""The description that a registered backend gives to the harness, from any package."""

import importlib.util
from pathlib import Path

import attrs
import pytest

from comparative_benchmark.backends import api
from comparative_benchmark.backends.api import BackendContext, UnsupportedError, untimed
from openxla.benchmark.devices import HOST_CPU

HERE = {**attrs.asdict(HOST_CPU), "accelerator_attributes": {}}


def context(**changes):
    values = {
        "compiler": "fast",
        "options": ["more"],
        "device": HERE,
        "threads": 2,
        "work_dir": "/work",
    }
    return BackendContext.read({**values, **changes}, untimed)


@pytest.mark.parametrize("accelerator", [None, "cpu"])
def test_a_context_is_read_as_it_was_told(accelerator):
    found = context(accelerator=accelerator, exported={"onnx": ["/a/model.onnx"]})
    assert (found.compiler, found.options, found.threads) == ("fast", ("more",), 2)
    assert found.device.name == "host-cpu"
    assert found.work_dir == Path("/work")
    assert found.exported == {"onnx": (Path("/a/model.onnx"),)}


def test_a_compiler_for_another_device_is_refused():
    with pytest.raises(
        UnsupportedError, match="fast runs only on GPUs, but the device is host-cpu"
    ):
        context(accelerator="gpu")


def test_packages_of_every_backend_are_recorded_those_of_plug_ins_too():
    found = api.recorded_packages()
    assert found["cbs_test_plugin"] == "cbs-test-plugin"
    assert found["iree.compiler"] == "iree-base-compiler"
    assert {"torch", "jax", "tensorflow", "onnxruntime", "openvino", "numpy"} <= set(found)


def test_versions_are_those_of_what_is_installed():
    assert set(api.installed_versions(["numpy", "no-such-package-anywhere"])) == {"numpy"}


def test_each_reproducer_has_its_template_next_to_it():
    for info in api.backends().values():
        if info.reproducer:
            module, _, function = info.reproducer.partition(":")
            source = Path(importlib.util.find_spec(module).origin)
            assert f"def {function}(task: ExportTask) -> Exported:" in source.read_text()
            assert "check.finish(" in source.with_name("run.py.txt").read_text()


def test_models_are_made_of_their_definition():
    one = api.ModelDefinition(module_path="collections", parameters={"no": "such model"})
    with pytest.raises(AttributeError, match=r"collections has no function create_model"):
        one.create()
