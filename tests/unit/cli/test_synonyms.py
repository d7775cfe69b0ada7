"""The names that users try are understood everywhere."""

import argparse

import pytest

from comparative_benchmark.backends.api import UnknownBackendError, backends, get_backend
from comparative_benchmark.cli.command import main, parse
from comparative_benchmark.engine.trial import parse_competitors
from comparative_benchmark.request import frameworks
from comparative_benchmark.sources.selection import find_device
from openxla.benchmark import synonyms
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import ModelFrameworkType


@pytest.mark.parametrize("name", ["pt", "torch", "PyTorch", "pytorch"])
def test_frameworks_have_synonyms(name):
    assert frameworks(name) == "pytorch"
    assert synonyms.framework_folder(name) == "pt"
    assert parse(["list", "--framework", name]).framework == "pytorch"


def test_several_frameworks_and_unknown_ones():
    assert frameworks("tf, jax") == "tensorflow_v2,jax"
    with pytest.raises(argparse.ArgumentTypeError, match="unknown framework pascal; choices are"):
        frameworks("pascal")


def test_every_synonym_stands_for_something_that_exists():
    for name in synonyms._FRAMEWORKS.values():
        assert ModelFrameworkType(name)
    for name in synonyms._DEVICES.values():
        assert find_device(name).name == name
    for name in synonyms._BACKENDS.values():
        backend, _, compiler = name.partition(":")
        assert not compiler or get_backend(backend).compiler(compiler)
    # A name of the suite always stands for itself.
    assert not backends().keys() & synonyms._BACKENDS.keys()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("eager", "pt_inductor:eager"),
        ("inductor+freezing", "pt_inductor:inductor+freezing"),
        ("torch:eager", "pt_inductor:eager"),
        ("onnx:basic", "onnxruntime:basic"),
        ("Tensorflow:xla", "tf_xla:xla"),
        ("jax_xla", "jax_xla"),
    ],
)
def test_backends_have_the_names_of_their_products(typed, meant):
    assert synonyms.competitor(typed) == meant
    if ":" in meant:
        assert [str(item) for item in parse_competitors(typed, "cpu")] == [meant]


def test_a_compiler_takes_no_second_compiler():
    with pytest.raises(UnknownBackendError, match="inductor already means pt_inductor:inductor"):
        parse_competitors("inductor:eager", "cpu")


@pytest.mark.parametrize("name", ["cpu", "host-cpu", "CPU"])
def test_devices_have_synonyms(name):
    assert find_device(name).name == "host-cpu"


CASE = "models/BERT_TINY_FP32_JAX_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"


def test_a_plain_text_is_searched_in_names():
    every = catalog.all_benchmarks()
    found = catalog.select(every, name="bert_tiny_fp32_jax")
    assert CASE in {case.name for case in found}
    assert all("BERT_TINY_FP32_JAX" in case.name for case in found)
    # A whole name does not search: EXAMPLE's batch 1 does not match its batch 16.
    [one] = catalog.select(every, name=CASE)
    assert one.name == CASE


@pytest.mark.parametrize("name", ["BERT_TINY.+BATCH1", "bert.*", "nothing_like_it"])
def test_an_expression_still_has_to_match_the_whole_name(name):
    with pytest.raises(catalog.NoMatchError):
        catalog.select(catalog.all_benchmarks(), name=name)


def test_the_baseline_has_synonyms_too(capsys):
    command = ["run", "-name", CASE, "--backend", "jax,xla", "--dry-run", "--baseline"]
    assert main([*command, "jax"]) == 0
    assert main([*command, "tf"]) == 1
    assert "--baseline 'tf_xla' is not among the competitors" in capsys.readouterr().err
