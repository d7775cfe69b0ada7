"""pip's configuration reaches uv, which installs the environments."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "uv_settings.py"


@pytest.fixture(scope="module")
def variables():
    return runpy.run_path(str(SCRIPT))["variables"]


def test_options_become_variables(variables):
    lines = [
        "global.index-url='https://mirror.example/simple'",
        "global.extra-index-url='file:///one file:///two'",
        "global.find-links='/wheels /more'",
        "global.cert='/ca.crt'",
        "global.proxy='http://proxy.example:3128'",
        "global.no-color='true'",
        "not a line of pip",
    ]
    assert variables(lines, {}) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "file:///one file:///two",
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/ca.crt",
        "ALL_PROXY": "http://proxy.example:3128",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_a_variable_overrides_a_file_and_what_uv_has_stays(variables):
    lines = [":env:.find-links='/env'", "global.find-links='/file'", "install.cert='/pip.crt'"]
    assert variables(lines, {"SSL_CERT_FILE": "/uv.crt"}) == {"UV_FIND_LINKS": "/env"}


def test_without_a_configuration_there_is_nothing_to_set(variables):
    assert variables([], {}) == {}
