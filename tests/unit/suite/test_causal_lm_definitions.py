"""Decoder-only language models: definitions, shapes, inputs, identities; without a framework."""

import csv
import json

import numpy as np
import pytest

from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.model_interfaces import GenerationModel, max_new_tokens

TINY = {"gpt2": "gpt2-tiny", "llama": "llama-tiny", "gemma": "gemma-tiny"}
SHORT = {"batch_size": 2, "data_type": "bf16", "seq_len": 16}

# The OpenXLA suite's rows of these models, in its own columns.
SEED = """\
models/GPT2LMHEAD_FP32_JAX_512XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT	{"batch_size": 1, "data_type": "fp32", "model_name": "gpt2"}	cnn,gpt2lmhead,batch-1
models/GPT2LMHEAD_FP32_JAX_512XI32_BATCH64/inputs/INPUT_DATA_MODEL_DEFAULT	{"batch_size": 64, "data_type": "fp32", "model_name": "gpt2"}	cnn,gpt2lmhead,batch-64
models/GPT2LMHEAD_FP32_JAX_512XI32_BATCH128/inputs/INPUT_DATA_MODEL_DEFAULT	{"batch_size": 128, "data_type": "fp32", "model_name": "gpt2"}	cnn,gpt2lmhead,batch-128
models/GEMMA2BIT_GREEDY_FP32_JAX_1X1024XI32_256XI32/inputs/INPUT_DATA_MODEL_DEFAULT	{"batch_size": 1, "data_type": "fp32", "max_new_tokens": 256, "model_name": "google/gemma-2b-it", "seq_len": 1024}	gemma,pipeline,fp32,batch-1,seqlen-1024
models/GEMMA2BIT_GREEDY_BF16_JAX_1X1024XI32_256XI32/inputs/INPUT_DATA_MODEL_DEFAULT	{"batch_size": 1, "data_type": "bf16", "max_new_tokens": 256, "model_name": "google/gemma-2b-it", "seq_len": 1024}	gemma,pipeline,bf16,batch-1,seqlen-1024
models/GEMMA2BIT_GREEDY_FP16_JAX_1X1024XI32_256XI32/inputs/INPUT_DATA_MODEL_DEFAULT	{"batch_size": 1, "data_type": "fp16", "max_new_tokens": 256, "model_name": "google/gemma-2b-it", "seq_len": 1024}	gemma,pipeline,fp16,batch-1,seqlen-1024
"""  # noqa: E501  # rows of a table
ROWS = list(csv.reader(SEED.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split("/")[1])
def test_the_seeds_cases_resolve_with_equal_parameters_and_tags(row):
    name, parameters, tags = row
    (case,) = catalog.select(catalog.all_benchmarks(), name=name, framework="jax")
    assert dict(case.model.model_parameters) == json.loads(parameters)
    assert dict(case.verify_parameters) == {"absolute_tolerance": 0.5}
    assert set(case.tags) == set(tags.split(","))


@pytest.mark.parametrize("name", TINY)
def test_outputs_are_logits_or_what_is_generated(name):
    architecture = architectures.get(name)
    given = {**SHORT, "model_name": TINY[name]}
    assert [str(spec) for spec in architecture.input_specs(given)] == ["2x16xi32"]
    assert [str(spec) for spec in architecture.output_specs(given)] == ["2x16x1024xbf16"]
    greedy = {**given, "max_new_tokens": 5}
    assert [str(spec) for spec in architecture.input_specs(greedy)] == ["2x16xi32"]
    assert [str(spec) for spec in architecture.output_specs(greedy)] == ["2x5xi32", "2x5x1024xf32"]
    labels = {architecture.label(item) for item in (given, greedy, {**given, "max_new_tokens": 6})}
    assert len(labels) == 3


@pytest.mark.parametrize("name", TINY)
def test_prompt_and_new_tokens_must_fit_the_positions(name):
    architecture = architectures.get(name)
    given = {**SHORT, "model_name": TINY[name], "seq_len": 120, "max_new_tokens": 8}
    architecture.input_specs(given)
    with pytest.raises(DefinitionError, match="129, but the maximum is 128"):
        architecture.input_specs({**given, "max_new_tokens": 9})


def test_gpt2_has_the_seeds_length_where_none_is_given():
    given = {"batch_size": 1, "data_type": "fp32", "model_name": "gpt2"}
    assert architectures.get("gpt2").input_specs(given)[0].shape == (1, 512)


def test_other_models_must_be_told_the_length():
    given = {"batch_size": 1, "data_type": "fp32", "model_name": "llama-tiny"}
    with pytest.raises(DefinitionError, match="seq_len"):
        architectures.get("llama").input_specs(given)


@pytest.mark.parametrize("value", [0, -1, True, "8", 2.0])
def test_a_number_of_new_tokens_that_is_none_is_refused(value):
    with pytest.raises(DefinitionError, match="max_new_tokens"):
        max_new_tokens({"max_new_tokens": value})


def test_a_window_longer_than_the_text_is_filled_without_padding(tmp_path):
    architecture = architectures.get("gemma")
    for name, source in architecture.checkpoint_files().items():
        (tmp_path / name).write_bytes(source.read_bytes())
    given = {"batch_size": 2, "data_type": "fp32", "seq_len": 1500}
    given["model_name"] = "google/gemma-2b-it"
    (ids,) = architecture.preprocess(architecture.default_inputs(given), given, tmp_path)
    assert ids.shape == (2, 1500)
    assert ids.dtype == np.int32
    padding = 0
    assert not np.any(ids == padding)
    assert np.any(ids[0] != ids[1])


@pytest.mark.parametrize("name", TINY)
def test_seeded_checkpoints_hold_what_the_recipe_declares(name):
    architecture = architectures.get(name)
    given = {**SHORT, "model_name": TINY[name]}
    tensors = checkpoints.load_tensors(architecture, checkpoints.resolve(architecture, given))
    declared = {
        init.name: init.shape for init in architecture.tensors(architecture.config(TINY[name]))
    }
    assert {key: tensors[key].shape for key in tensors} == declared


def test_names_of_openais_checkpoint_get_their_prefix():
    architecture = architectures.get("gpt2")
    assert architecture.canonical_weight_name("h.0.ln_1.bias") == "transformer.h.0.ln_1.bias"
    ours = "transformer.wte.weight"
    assert architecture.canonical_weight_name(ours) == ours


def test_verification_feeds_the_tokens_of_the_truth():
    prompt, tokens, logits = np.zeros((1, 4)), np.ones((1, 2)), np.ones((1, 2, 8))
    first, forced = GenerationModel.verification_inputs([prompt], [tokens, logits])
    assert first is prompt
    assert forced is tokens
