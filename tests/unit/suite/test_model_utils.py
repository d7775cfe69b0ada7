"""Functions that model modules of the OpenXLA suite call, on a server of this machine."""

import functools
import http.server
import threading

import pytest

from openxla.benchmark.def_types import Model, ModelFrameworkType, ModelImplementation
from openxla.benchmark.models import in_tree


@pytest.fixture
def server(tmp_path):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


def test_a_picture_is_read_from_its_address(server, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (3, 2), (255, 0, 0)).save(tmp_path / "red.png")
    (tmp_path / "text.png").write_text("no picture")
    found = in_tree.download_and_read_img(f"{server}/red.png")
    assert (found.size, found.getpixel((2, 1))) == ((3, 2), (255, 0, 0))
    for name in ("text.png", "nowhere.png"):
        with pytest.raises(OSError, match=r"cannot identify|404"):
            in_tree.download_and_read_img(f"{server}/{name}")


def test_no_file_of_this_machine_is_an_address(tmp_path):
    with pytest.raises(ValueError, match="is not an http or https URL"):
        in_tree.download_and_read_img((tmp_path / "a.png").as_uri())


def test_a_definition_names_module_and_parameters(tmp_path, monkeypatch):
    (tmp_path / "own_model_module.py").write_text("def create_model(**given): return given")
    monkeypatch.syspath_prepend(tmp_path)
    implementation = ModelImplementation(
        name="OWN",
        tags=[],
        framework_type=ModelFrameworkType.PYTORCH,
        module_path="own_model_module",
    )
    parameters = {"batch_size": 2, "data_type": "fp32"}
    model = Model(name="OWN", tags=[], model_impl=implementation, model_parameters=parameters)
    assert in_tree.create_model_obj(model) == parameters
    assert in_tree.canonicalize_to_tuple(3) == (3,)
    assert in_tree.canonicalize_to_tuple((3, 4)) == (3, 4)
