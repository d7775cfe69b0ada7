"""Exports by separate processes: the manifest names right files, and nothing else."""

import functools
import hashlib
import json
import os
import time
from pathlib import Path

import attrs
import pytest

from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.engine.session import Limits
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.maintenance.artifacts import generation, kinds, selection
from comparative_benchmark.maintenance.artifacts.kinds import Kind
from comparative_benchmark.maintenance.artifacts.outcomes import (
    Ending,
    ExportSettings,
    MadeFile,
    refused,
)
from openxla.benchmark import devices
from openxla.benchmark.artifacts import manifests
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.comparative_suite import families as suite_exports
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.installation import ROOT_DIR_VARIABLE

pytestmark = pytest.mark.slow

DATE = "2026-11-21T12:00:00+00:00"
TOY = "cbs_test_plugin.suite"


def kind(name="toy", exporter="export", consumer="run", **changes):
    fields = {
        "name": name,
        "files": ("program.txt",),
        "exporter": f"exporter_doubles:{exporter}",
        "consumer": f"exporter_doubles:{consumer}",
        "modules": {ModelFrameworkType.PYTORCH: ("numpy",)},
        "backend": "test_numpy",
        "producers": ("numpy", "a-package-that-is-missing"),
    }
    return Kind(**{**fields, **changes})


@pytest.fixture(autouse=True)
def _doubles(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)


def settings(tmp_path, **limits):
    run = RunSettings(
        device=devices.HOST_CPU, threads=1, limits=Limits(**limits), log_dir=tmp_path / "logs"
    )
    return ExportSettings(run=run, date=lambda: DATE)


def _subject(suite, name, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("subject")
        patch.setenv(ROOT_DIR_VARIABLE, str(folder / "root"))
        cases = catalog.all_benchmarks([suite])
        found = selection.cases(cases, name=name, of=None)
        subjects, failures = selection.subjects(
            found, settings(folder).run, lambda _: None, reference=get_backend("test_numpy")
        )
    assert not failures
    (made,) = subjects
    return made


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    """The toy model with its truth, made once."""
    return _subject(TOY, "TOY_NONE", tmp_path_factory)


class Observer:
    def __init__(self):
        self.told = []

    def export_finished(self, outcome, position, total):
        self.told.append((outcome.kind, outcome.ending, position, total))


def make(found, subject, tmp_path, *, made=None, **limits):
    directory = tmp_path / "made" / found.name
    directory.mkdir(parents=True)
    return generation.export_artifact(
        found, subject, directory, made or {}, settings(tmp_path, **limits)
    )


def test_an_export_that_is_read_back_and_right_is_named(subject, tmp_path):
    outcome = make(kind(), subject, tmp_path)
    assert outcome.ending is Ending.OK, outcome.reason
    (file,) = outcome.files
    assert file.path == "program.txt"
    assert file.sha256 == hashlib.sha256(b"the program").hexdigest()
    assert file.size_bytes == len("the program")
    assert set(outcome.versions) == {"numpy", "common-benchmark-suite"}
    assert 0 <= outcome.relative_error < 1e-6


def test_tokens_behind_a_near_tie_are_judged_along_their_own_text(tmp_path, tmp_path_factory):
    """No file can be fed with the truth's tokens: the truth is fed with the file's."""
    twins = _subject("cbs_test_plugin.generating_suite", "TWINS_NONE", tmp_path_factory)
    right = make(kind("right", consumer="run_text"), twins, tmp_path)
    assert right.ending is Ending.OK, right.reason
    assert (tmp_path / "made" / "right" / "along" / "truth").is_dir()
    assert 0 < right.relative_error < 1e-6
    wrong = make(kind("wrong", consumer="run_text_wrong_at_the_end"), twins, tmp_path)
    assert wrong.ending is Ending.WRONG_OUTPUT
    assert "checked on the program's own tokens" in wrong.reason


def test_what_nothing_here_can_run_is_there_and_not_called_right(subject, tmp_path, known):
    (found,) = known(kind(consumer="run_nowhere"))
    (outcome, _) = sorted(
        generate(tmp_path / "out", subject, tmp_path, [found]), key=lambda item: item.kind != "toy"
    )
    assert outcome.ending is Ending.NOT_RUN
    assert outcome.relative_error is None
    manifest = manifests.read_manifest(tmp_path / "out" / "TOY_NONE")
    (file,) = manifest.files
    assert file.path == "program.txt"
    assert file.not_run == "no such device, see scratch/log"
    assert "toy" not in {failure.artifact_type for failure in manifest.failures}


def test_of_what_was_run_the_manifest_says_nothing_more(subject, tmp_path, known):
    generate(tmp_path / "out", subject, tmp_path, known(kind()))
    text = (tmp_path / "out" / "TOY_NONE" / "manifest.json").read_text()
    assert "program.txt" in text
    assert "not_run" not in text


def test_a_consumer_sees_the_device_that_its_kind_is_for(subject, tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for accelerator, consumer in (
        ("cpu", "run_where_gpus_are_hidden"),
        ("gpu", "run_where_gpus_are_seen"),
    ):
        found = kind(accelerator, consumer=consumer, accelerator=accelerator)
        outcome = make(found, subject, tmp_path)
        assert outcome.ending is Ending.OK, outcome.reason


FAULTS = {
    ("export_nothing", "run"): (Ending.FAILED, "missing: program.txt"),
    ("export_nothing_in_it", "run"): (Ending.FAILED, "empty: program.txt"),
    ("export_too_much", "run"): (Ending.FAILED, "unexpected: stray.txt"),
    ("export_refuses", "run"): (Ending.UNSUPPORTED, "no such model, see scratch/log"),
    ("export_raises", "run"): (Ending.FAILED, "the exporter is tired"),
    ("crash", "run"): (Ending.FAILED, "in export (crashed)"),
    ("export", "crash"): (Ending.FAILED, "in read back (crashed)"),
    ("export", "run_scaled"): (Ending.WRONG_OUTPUT, "relative error"),
    ("export", "run_constant"): (Ending.WRONG_OUTPUT, "relative error"),
    ("export", "run_not_a_number"): (Ending.WRONG_OUTPUT, "NaN"),
    ("export", "run_wider"): (Ending.WRONG_OUTPUT, "output 0"),
    ("export", "run_nothing"): (Ending.WRONG_OUTPUT, "outputs: expected 1, got 0"),
    ("export", "run_and_change"): (Ending.FAILED, "changed while they were read"),
    ("export", "run_nowhere_and_change"): (Ending.FAILED, "changed while they were read"),
    ("no_such_function", "run"): (Ending.FAILED, "no_such_function"),
}


@pytest.mark.parametrize(("exporter", "consumer"), FAULTS)
def test_a_fault_costs_the_artifact_and_gives_the_reason(subject, tmp_path, exporter, consumer):
    outcome = make(kind(exporter=exporter, consumer=consumer), subject, tmp_path)
    ending, reason = FAULTS[exporter, consumer]
    assert outcome.ending is ending, outcome.reason
    assert reason in outcome.reason
    assert outcome.files == ()
    assert str(tmp_path) not in outcome.reason


@pytest.mark.parametrize(("exporter", "consumer"), [("hang", "run"), ("export", "hang")])
def test_a_hang_ends_at_the_deadline(subject, tmp_path, exporter, consumer):
    outcome = make(kind(exporter=exporter, consumer=consumer), subject, tmp_path, deadline_s=2.0)
    assert outcome.ending is Ending.FAILED
    assert "(timeout)" in outcome.reason


def test_hoarding_ends_at_the_limit_of_memory(subject, tmp_path):
    outcome = make(kind(exporter="hoard"), subject, tmp_path, memory_bytes=400 << 20)
    assert outcome.ending is Ending.FAILED
    assert "(out_of_memory)" in outcome.reason


def test_inputs_have_to_be_the_very_same(subject, tmp_path):
    right = make(kind(consumer="read_inputs", judged_by="inputs"), subject, tmp_path)
    assert right.ending is Ending.OK, right.reason
    wrong = make(kind("other", consumer="read_other_inputs", judged_by="inputs"), subject, tmp_path)
    assert wrong.ending is Ending.WRONG_OUTPUT
    assert "array 0 differs" in wrong.reason


PLAIN = ("inputs", "outputs", "truth", "workload", "checkpoint")


def generate(root, subject, tmp_path, found, observer=None, **arguments):
    plan = generation.Plan(subject=subject, kinds=found, refused={"onnx": "torch is missing"})
    work = generation.Generation(root, settings(tmp_path), observer or Observer(), **arguments)
    return work.run([plan])


@pytest.fixture
def known(monkeypatch):
    """Lets kinds of the tests take part in what the registry orders."""

    def register(*found):
        monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, *found))
        return list(found)

    return register


def test_a_models_directory_has_all_files_and_a_manifest_that_describes_them(
    subject, tmp_path, monkeypatch
):
    monkeypatch.setenv(ROOT_DIR_VARIABLE, str(tmp_path / "root"))
    observer, root = Observer(), tmp_path / "out"
    outcomes = generate(root, subject, tmp_path, [kinds.find(name) for name in PLAIN], observer)
    assert {outcome.kind: outcome.ending for outcome in outcomes} == {
        **dict.fromkeys(PLAIN, Ending.OK),
        "onnx": Ending.UNSUPPORTED,
    }, [outcome.reason for outcome in outcomes]
    assert [position for _, _, position, _ in observer.told] == [1, 2, 3, 4, 5, 6]
    assert [path.name for path in root.iterdir()] == ["TOY_NONE"]
    directory = root / "TOY_NONE"
    manifest = manifests.read_manifest(directory)
    assert manifest.model == "TOY_NONE"
    there = {p.relative_to(directory).as_posix(): p for p in directory.rglob("*") if p.is_file()}
    del there["manifest.json"]
    assert {file.path for file in manifest.files} == set(there)
    assert {"inputs_npy.tgz", "outputs_npy.tgz", "truth_npy.tgz", "workload.json"} < set(there)
    assert {"checkpoint/config.json", "checkpoint/model.safetensors"} < set(there)
    for file in manifest.files:
        content = there[file.path].read_bytes()
        assert hashlib.sha256(content).hexdigest() == file.sha256
        assert len(content) == file.size_bytes
        assert file.date == DATE
    (failure,) = manifest.failures
    assert (failure.artifact_type, failure.reason) == ("onnx", "torch is missing")


def test_two_generations_give_the_same_bytes(subject, tmp_path, monkeypatch):
    monkeypatch.setenv(ROOT_DIR_VARIABLE, str(tmp_path / "root"))
    found = [kinds.find(name) for name in PLAIN]
    for name in ("one", "two"):
        generate(tmp_path / name, subject, tmp_path, found)
    one, two = (
        {
            path.relative_to(tmp_path / name).as_posix(): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("one", "two")
    )
    assert len(one) > 6
    assert one == two


def test_a_failure_leaves_the_others_standing(subject, tmp_path, known):
    found = known(
        kind("crashing", exporter="crash"), kind("scaled", consumer="run_scaled"), kind("good")
    )
    outcomes = generate(tmp_path / "out", subject, tmp_path, found, jobs=2)
    assert {outcome.kind: outcome.ending for outcome in outcomes} == {
        "onnx": Ending.UNSUPPORTED,
        "crashing": Ending.FAILED,
        "scaled": Ending.WRONG_OUTPUT,
        "good": Ending.OK,
    }
    manifest = manifests.read_manifest(tmp_path / "out" / "TOY_NONE")
    assert [file.artifact_type for file in manifest.files] == ["good"]
    assert [failure.artifact_type for failure in manifest.failures] == [
        "crashing",
        "onnx",
        "scaled",
    ]


def test_what_others_need_is_made_before_them_and_given_to_them(subject, tmp_path, known):
    weights = kind("weights")
    program = kind(
        "program",
        exporter="export_other_file",
        files=("other.txt",),
        consumer="run_with_companion",
        companions=("weights",),
    )
    outcomes = generate(tmp_path / "out", subject, tmp_path, known(program, weights))
    by_kind = {outcome.kind: outcome for outcome in outcomes}
    assert by_kind["weights"].ending is by_kind["program"].ending is Ending.OK, by_kind


def test_what_needs_a_failure_is_not_tried(subject, tmp_path, known):
    found = known(
        kind("weights", exporter="crash"), kind("program", exporter="hang", companions=("weights",))
    )
    outcomes = generate(tmp_path / "out", subject, tmp_path, found)
    (program,) = (outcome for outcome in outcomes if outcome.kind == "program")
    assert program.ending is Ending.UNSUPPORTED
    assert "weights could not be created" in program.reason


def test_an_interruption_leaves_nothing_that_could_be_taken_for_a_model(subject, tmp_path, known):
    def interrupted(found, *_):
        if found.name == "second":
            raise KeyboardInterrupt
        return refused("TOY_NONE", found.name, "whatever", DATE)

    with pytest.raises(KeyboardInterrupt):
        generate(
            tmp_path / "out",
            subject,
            tmp_path,
            known(kind("first"), kind("second")),
            make=interrupted,
        )
    assert list((tmp_path / "out").iterdir()) == []


def test_an_interruption_does_not_wait_for_exports_that_run_beside(subject, tmp_path, known):
    class Interrupting(Observer):
        def export_finished(self, outcome, position, total):
            if outcome.kind == "good":
                raise KeyboardInterrupt

    found = known(kind("good"), kind("hanging", exporter="hang"), kind("idle", consumer="hang"))
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "out", subject, tmp_path, found, Interrupting(), jobs=3)
    # Their deadline is an hour.
    assert time.monotonic() - started < 300
    assert list((tmp_path / "out").iterdir()) == []


def test_what_was_proved_is_recorded_and_derived(subject, tmp_path, monkeypatch):
    path, model = tmp_path / "exported_types.json", subject.case.model

    def manifest(**endings):
        outcomes = []
        for name, ending in endings.items():
            outcome = refused(model.name, name, "why not", DATE)
            file = MadeFile(path=name, sha256="0" * 64, size_bytes=1)
            if ending is Ending.OK:
                outcome = attrs.evolve(outcome, ending=ending, files=(file,))
            outcomes.append(outcome)
        return selection.entry(model, generation.manifest_of(model.name, outcomes))

    first = manifest(stablehlo_mlir=Ending.OK, tflite_int8=Ending.FAILED, inputs=Ending.OK)
    selection.update(path, {model.name: first})
    selection.update(path, {model.name: manifest(linalg_mlir=Ending.OK, onnx=Ending.FAILED)})
    content = path.read_bytes()
    selection.update(path, {model.name: first})
    assert path.read_bytes() == content
    entry = json.loads(content)["models"][model.name]
    assert entry["types"] == ["linalg_mlir", "stablehlo_mlir"]
    assert entry["failures"] == {"tflite_int8": "why not"}
    monkeypatch.setattr(suite_exports, "PROVED_FILE", path)
    derived = functools.partial(suite_exports.proved_exports, model.model_impl)
    assert [kind.value for kind in derived(model.model_parameters)] == [
        "stablehlo_mlir",
        "linalg_mlir",
    ]
    assert derived({**model.model_parameters, "data_type": "bf16"}) == ()
    assert derived({**model.model_parameters, "max_new_tokens": 4}) == ()
    # Another model of the kind exports to less: it counts.
    selection.update(path, {"OTHER": {**entry, "types": ["linalg_mlir"]}})
    assert [kind.value for kind in derived(model.model_parameters)] == ["linalg_mlir"]
