"""Model folders of TorchBench: found and read without importing one, installed apart from us."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from comparative_benchmark.api import case_selection
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.results.record import Status
from comparative_benchmark.sources.torchbench import folders, installing, unsupported_reasons
from openxla.benchmark.workloads import workload_of

DATA = Path(__file__).parents[2] / "data" / "torchbench"
CURRENT = """
from torchbenchmark.util.model import BenchmarkModel
raise SystemExit("this must not be imported")
class Model(BenchmarkModel):
    DEFAULT_EVAL_BSIZE = 8
    DEFAULT_TRAIN_BSIZE: int = 4
    def __init__(self, test, device, batch_size=None, extra_args=[]): ...
"""


def folder(place, name="net", init=CURRENT, **files):
    made = place / name
    made.mkdir(parents=True)
    (made / "__init__.py").write_text(init)
    for file, content in files.items():
        (made / file.replace("_", ".")).write_text(content)
    return made


def test_protocols_and_batch_sizes_are_read_off_the_source():
    found = {item.name: item for item in folders.find([DATA])}
    assert {name: item.protocol for name, item in found.items()} == {
        "agent_net": "current",
        "dict_net": "current",
        "guide_mlp": "2021",
        "list_net": "current",
        "meter": "current",
        "staged_net": "current",
    }
    # metadata.yaml's size for the CPU goes before the class's own.
    assert found["staged_net"].batch_sizes == {"train": 4, "eval": 2}
    assert found["guide_mlp"].installs
    assert not found["meter"].installs


def test_no_folder_is_imported_to_be_found():
    script = (
        "import sys; from pathlib import Path\n"
        "from comparative_benchmark.sources.torchbench import folders\n"
        "assert folders.find([Path(sys.argv[1])])\n"
        "assert not {'torch', 'torchbenchmark'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(DATA)], check=True)


def test_a_folder_a_directory_and_a_checkout_are_searched(tmp_path):
    one = folder(tmp_path / "checkout" / "torchbenchmark" / "models")
    (tmp_path / "checkout" / "torchbenchmark" / "__init__.py").touch()
    (one / "inner").mkdir()
    (one / "inner" / "__init__.py").write_text("class Model: ...")  # a part of it, not another one
    for path in (one, one.parent, tmp_path / "checkout"):
        assert [item.path for item in folders.find([path])] == [one]
    assert len(folders.find([one, one.parent])) == 1


def test_the_digest_is_of_the_content(tmp_path):
    one = folder(tmp_path / "a", data_json="1")
    same = folder(tmp_path / "b", data_json="1")
    assert folders.digest(one) == folders.digest(same)
    (one / "__pycache__").mkdir()
    (one / "__pycache__" / "x.pyc").write_bytes(b"1")
    assert folders.digest(one) == folders.digest(same)
    (one / "data.json").write_text("2")
    assert folders.digest(one) != folders.digest(same)


def test_the_workload_is_what_is_run_wherever_it_lies(tmp_path):
    def workload(place, test="eval", **options):
        (case,) = folders.cases(folders.named(folders.find([place])), test, **options)
        return workload_of(case).digest

    here, there = folder(tmp_path / "a"), folder(tmp_path / "b")
    assert workload(here) == workload(there)
    assert workload(here, packages={here: tmp_path}) == workload(there)
    assert workload(here, "train") != workload(here)
    assert workload(here, batch_size=3) != workload(here)
    (here / "more.py").touch()
    assert workload(here) != workload(there)


def test_names_tell_folders_apart(tmp_path):
    folder(tmp_path / "a"), folder(tmp_path / "b"), folder(tmp_path, "other")
    found = folders.named(folders.find([tmp_path]))
    assert list(found) == ["a.net", "b.net", "other"]
    chosen = folders.cases(found, "eval", name=r".*\.net")
    assert [case.model.name for case in chosen] == ["a.net_EVAL_PT_BATCH8", "b.net_EVAL_PT_BATCH8"]
    assert all(case.model.model_impl.own_process for case in chosen)
    with pytest.raises(
        folders.FolderError, match=r"no folder matches -name 'resnet'; choices are a\.net"
    ):
        folders.cases(found, "eval", name="resnet")
    with pytest.raises(folders.FolderError, match="not a regular expression"):
        folders.cases(found, "eval", name="(")


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/x/a/net", "/y/a/net", "/z/a/net"], ["a.net", "a.net.00000000", "a.net.2"]),
        (["/x/a b/net", "/x/a c/net", "/x/a+b/net"], ["a_b.net", "a_c.net", "a+b.net"]),
        (["/x/a b/net", "/x/a_b/net", "/x/a-b"], ["a_b.net", "a_b.net.00000000", "a-b"]),
        (["/x/-", "/y/+", "/z/_"], ["folder", "folder.00000000", "folder.2"]),
    ],
)
def test_no_folder_replaces_another(paths, names):
    found = [folders.Folder(path=Path(path), sha256="0" * 64) for path in paths]
    named = folders.named(found)
    assert list(named) == names
    assert list(named.values()) == found


def test_what_is_not_there_is_said_with_what_is(tmp_path):
    folder(tmp_path, "resnet18")
    with pytest.raises(folders.FolderError, match=r"does not exist; did you mean .*resnet18"):
        folders.find([tmp_path / "resnet81"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(folders.FolderError, match="class Model"):
        folders.find([tmp_path / "empty"])


def test_links_out_of_a_folder_are_refused_and_those_inside_are_not(tmp_path):
    one = folder(tmp_path, weights_bin="0")
    (one / "again.bin").symlink_to("weights.bin")
    (one / "loop").symlink_to("loop")
    assert folders.read(one).problem is None
    (one / "passwd").symlink_to("/etc/passwd")
    assert "passwd links to /etc/passwd, outside the folder" in folders.read(one).problem


@pytest.mark.parametrize(
    "metadata",
    [
        *(
            "devices: [cpu]",
            "devices:\n  cpu: 4",
            "a: [",
            "!!python/object/apply:os.abort []",
            "- 1",
        ),
        *('a: "\\U00110000"', 'a: "\\UFFFFFFFF"', "a: 2020-13-45", '!!int ""', "[" * 100),
    ],
)
def test_metadata_that_says_nothing_is_no_harm(tmp_path, metadata):
    one = folder(tmp_path, metadata_yaml=metadata)
    assert folders.read(one).batch_sizes == {"eval": 8, "train": 4}


@pytest.mark.parametrize("rest", ["(:", f": x = {'-' * 50_000}1", f": x = {'(' * 5000}"])
def test_source_that_cannot_be_parsed_is_left_to_its_worker(tmp_path, rest):
    one = folder(tmp_path, init=f"class Model{rest}")
    (found,) = folders.find([one])
    assert (found.protocol, found.problem) == ("unknown", None)


def _wheel(path, name):
    with zipfile.ZipFile(path / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "FROM = 'its own environment'")
        wheel.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{name}-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")


INSTALL = "from utils.python_utils import pip_install_requirements\npip_install_requirements()\n"


@pytest.mark.slow
def test_install_py_fills_an_environment_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CBS_ROOT_DIR", str(tmp_path / "root"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("SOME_TOKEN", "secret")
    told = "import os\nopen('told', 'w').write(str('SOME_TOKEN' in os.environ))\n"
    one = folder(
        tmp_path,
        install_py=told + INSTALL,
        requirements_txt="./cbs_extra-1.0-py3-none-any.whl\nnumpy\n",
    )
    _wheel(one, "cbs_extra")
    (found,) = folders.find([one])
    before = installing.packages_of([found], install=False)
    assert not before.packages
    assert "pass --install to run it" in before.said[0]
    done = installing.packages_of([found], install=True)
    assert not done.failures
    place = done.packages[one]
    assert (place / "cbs_extra.py").is_file()
    assert not (place / "numpy").exists()  # ours satisfies it
    assert (one / "told").read_text() == "False"
    with pytest.raises(ModuleNotFoundError):
        __import__("cbs_extra")
    # Once is enough, also though install.py has added to the folder.
    (again,) = folders.find([one])
    assert installing.packages_of([again], install=False).packages == {one: place}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("install", "reason"),
    [
        (INSTALL, "network: install.py failed with exit code 1"),
        (
            "raise ValueError('not today')",
            "install.py failed with exit code 1: ValueError: not today",
        ),
    ],
)
def test_install_py_that_fails_gives_the_reason(tmp_path, monkeypatch, install, reason):
    monkeypatch.setenv("CBS_ROOT_DIR", str(tmp_path / "root"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    one = folder(tmp_path, install_py=install, requirements_txt="cbs-not-there")
    done = installing.packages_of(folders.find([one]), install=True)
    assert done.failures[one].startswith(reason)
    assert not done.packages


def test_errors_for_lack_of_the_network_are_known():
    guard = unsupported_reasons.NetworkGuard()
    assert guard.reason(ValueError("shapes differ")) is None
    offline = OSError("could not connect")
    offline.__cause__ = unsupported_reasons.NetworkRefusedError("refused here: huggingface.co")
    assert guard.reason(offline).startswith("network: ")
    import subprocess

    assert "wget" in guard.reason(subprocess.CalledProcessError(4, ["wget", "-q", "x"]))
    guard.refused.append("example.org")
    assert "a connection to example.org" in guard.reason(RuntimeError("no weights"))


def test_this_machine_is_not_the_network():
    guard = unsupported_reasons.NetworkGuard()
    for host in ("localhost", "127.0.0.1", "::1", "", "0.0.0.0"):
        guard._check((host, 80))
    for host in ("example.org", "10.0.0.1", b"example.org"):
        with pytest.raises(unsupported_reasons.NetworkRefusedError):
            guard._check((host, 80))


def test_metadata_lists_what_is_not_implemented_and_a_fixed_batch_stays(tmp_path):
    listed = "not_implemented:\n- device: cpu\n  test: train\n- jit: true\n- test: eval\n"
    one = folders.read(folder(tmp_path, metadata_yaml=listed))
    assert one.lists_as_not_implemented("train", "cpu")
    assert not one.lists_as_not_implemented("train", "cuda")
    assert one.lists_as_not_implemented("eval", "cuda")
    sizes = "devices:\n  cpu:\n    eval_batch_size: 2\n"
    fixed = CURRENT.replace(
        "    DEFAULT_TRAIN", "    ALLOW_CUSTOMIZE_BSIZE = False\n    DEFAULT_TRAIN"
    )
    assert folders.read(folder(tmp_path, "free", metadata_yaml=sizes)).batch_sizes["eval"] == 2
    held = folders.read(folder(tmp_path, "fixed", fixed, metadata_yaml=sizes))
    assert held.batch_sizes["eval"] == 8


def ended(status, reason="why"):
    return SessionEnded(status, "load", reason)


@pytest.mark.parametrize(
    ("answers", "size", "words"),
    [
        # The action of each size from 1: the number of values in its inputs, or its end.
        ([4, 8, 16, ended(Status.OUT_OF_MEMORY)], 4, "8 ended with out_of_memory"),
        ([4, 8, ended(Status.TIMEOUT)], 2, "4 ended with timeout"),
        ([4, ended(Status.FAILED, "even ones only")], 1, "2 ended with failed: even ones only"),
        ([ended(Status.UNSUPPORTED, "the batch size must be 5")], None, "must be 5"),
        ([4, 4], None, "do not grow"),
    ],
)
def test_the_largest_batch_is_found_by_doubling(answers, size, words):
    asked = []

    def try_out(batch_size):
        asked.append(batch_size)
        answer = answers[len(asked) - 1]
        if isinstance(answer, SessionEnded):
            raise answer
        return answer

    found, why = case_selection.largest_batch(try_out)
    assert found == size
    assert words in why
    assert asked == [2**power for power in range(len(answers))]


def test_install_py_finds_what_torchbench_offers_it(tmp_path, monkeypatch):
    monkeypatch.setenv("CBS_ROOT_DIR", str(tmp_path / "root"))
    text = (
        "from torchbenchmark.util.framework.huggingface.patch_hf import cache_model\n"
        "from torchbenchmark.util.framework.gnn import install_pytorch_geometric\n"
        "from utils.python_utils import pip_install_requirements\n"
        "cache_model('hf_Bert')\n"
    )
    one = folders.read(folder(tmp_path, install_py=text))
    assert installing.run_install(one, installing.environment_of(one)) is None


def test_data_of_the_store_are_taken_where_they_are_and_named_where_not(tmp_path):
    install = """
from utils import s3_utils
s3_utils.checkout_s3_data("INPUT_TARBALLS", "there.tar.gz", decompress=True)
s3_utils.checkout_s3_data("INPUT_TARBALLS", "missing.tar.gz", decompress=True)
"""
    (tmp_path / "torchbenchmark" / "data" / ".data" / "there").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", install],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installing._UTILS), "CBS_TORCHBENCH_REPO": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert "ConnectionError: missing.tar.gz is in TorchBench's S3 store" in last
    assert last.endswith(f"copy it to {tmp_path}/torchbenchmark/data/.data/missing")
