"""`hub:owner/name@revision`, from a local server that imitates the hub, or without a server."""

import json

import pytest
from test_pretrained import REPOSITORY, REVISION, closed_port, serving

from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.user_models import ModelOptions, UserModelError, find_cases, is_model

pytestmark = pytest.mark.slow

assert closed_port  # a fixture

FIND = """
import json, sys
from openxla.benchmark.user_models import ModelOptions, Recorded, UserModelError
from openxla.benchmark.user_models import command_words, find_cases
from openxla.benchmark.workloads import workload_of
try:
    cases = find_cases(sys.argv[1], ModelOptions(allow_code="--allow-code" in sys.argv)).cases
except UserModelError as error:
    print(json.dumps({"error": str(error)}))
else:
    case = cases[0]
    print(json.dumps({
        "names": [case.model.name for case in cases],
        "parameters": dict(case.model.model_parameters),
        "workload": workload_of(case).digest,
        "again": command_words(Recorded(
            model=case.model.name, parameters=case.model.model_parameters, framework="pytorch",
            input_data=case.input_data.name)),
    }))
"""
BY_BRANCH, BY_COMMIT = f"hub:{REPOSITORY}@main", f"hub:{REPOSITORY}@{REVISION}"


@pytest.fixture
def files(root):
    """A small BERT, with further files that no loader needs."""
    made = checkpoints.seeded(architectures.get("bert"), "bert-tiny")
    names = ("config.json", "model.safetensors")
    return {
        **{name: (made / name).read_bytes() for name in names},
        "tokenizer.json": b"{}",
        "pytorch_model.bin": b"a pickle, which nobody needs",
        "README.md": b"# BERT\n",
        "onnx/model.safetensors": b"another model",
    }


@pytest.fixture
def find(run_python, tmp_path):
    """Resolves a model in a fresh process; returns the result."""

    def run(endpoint, *words):
        done = run_python(
            FIND,
            *words,
            HF_ENDPOINT=endpoint,
            HF_HOME=str(tmp_path / "hf"),
            HF_HUB_DISABLE_TELEMETRY="1",
            HF_HUB_DISABLE_XET="1",
            HF_HUB_DISABLE_PROGRESS_BARS="1",
            NO_PROXY="127.0.0.1",
            no_proxy="127.0.0.1",
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_branch_is_fetched_at_its_commit_and_known_by_its_content(find, files, closed_port):
    with serving(files) as (endpoint, requests):
        got = find(endpoint, BY_BRANCH)
    name = REPOSITORY.rpartition("/")[2].replace("-", "_").upper()
    assert got["names"] == [f"{name}_FP32_{framework}" for framework in ("PT", "JAX", "TF")]
    assert got["parameters"]["hub"] == f"{REPOSITORY}@{REVISION}"
    assert got["again"].startswith(f"{BY_COMMIT} ")
    assert not [path for path in requests if path.endswith((".bin", ".md"))]
    assert not [path for path in requests if "onnx/" in path]
    # The commit is in the cache, so no server is used.
    assert find(closed_port, BY_COMMIT) == got


def test_without_a_hub_one_line_names_a_remedy(find, closed_port):
    said = find(closed_port, BY_BRANCH)["error"]
    assert said.startswith(f"{BY_BRANCH} cannot be fetched (")
    assert "HF_ENDPOINT" in said
    assert "pass a local directory that contains it" in said
    assert "\n" not in said


def test_pickles_are_fetched_only_by_those_who_say_so(find, files):
    del files["model.safetensors"]
    with serving(files) as (endpoint, requests):
        said = find(endpoint, BY_BRANCH)["error"]
        assert "has only pickled weights" in said
        assert "--allow-code" in said
        assert not [path for path in requests if "resolve" in path]
        trusted = find(endpoint, BY_BRANCH, "--allow-code")
    assert trusted["parameters"]["pickled"] is True
    assert len(trusted["names"]) == 1


def test_modules_that_follow_a_transformer_are_fetched_from_their_folders(find, files, closed_port):
    kinds = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    modules = [{"type": f"sentence_transformers.models.{k}", "path": path} for k, path in kinds]
    files["modules.json"] = json.dumps(modules).encode()
    files["1_Pooling/config.json"] = b'{"pooling_mode": "cls"}'
    with serving(files) as (endpoint, requests):
        got = find(endpoint, BY_BRANCH)
    assert got["parameters"]["pipeline"] == "Transformer, Pooling (cls), Normalize"
    assert not [path for path in requests if "onnx/" in path]
    assert find(closed_port, BY_COMMIT) == got


def test_what_is_no_model_or_not_there_is_reported(find, files):
    del files["config.json"]
    with serving(files) as (endpoint, _):
        assert "has no config.json" in find(endpoint, BY_BRANCH)["error"]
        assert "cannot be fetched" in find(endpoint, "hub:nobody/nothing")["error"]


@pytest.mark.parametrize("text", ["hub:", "hub:../x", "hub:a/b/c", "hub:a/b@", "hub:a/../b"])
def test_a_name_that_cannot_be_on_the_hub_is_reported(text):
    assert is_model(text)
    with pytest.raises(UserModelError, match="expected hub:OWNER/NAME or"):
        find_cases(text, ModelOptions())
