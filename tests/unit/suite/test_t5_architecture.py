"""T5's inputs and signatures, without a framework."""

import numpy as np
import pytest

from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.installation import ROOT_DIR_VARIABLE
from openxla.benchmark.models import checkpoints
from openxla.benchmark.models.architectures import t5, t5_for_cond_gen

TINY = {"model_name": "t5-tiny", "data_type": "fp32", "batch_size": 3, "seq_len": 16}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOT_DIR_VARIABLE, str(tmp_path_factory.mktemp("root")))
        yield checkpoints.resolve(t5.ARCHITECTURE, TINY)


def inputs_of(architecture, parameters, checkpoint):
    text = architecture.default_inputs(parameters)
    return architecture.preprocess(text, parameters, checkpoint)


@pytest.mark.parametrize("architecture", [t5.ARCHITECTURE, t5_for_cond_gen.ARCHITECTURE])
def test_inputs_are_what_is_declared_and_rows_differ(architecture, checkpoint):
    inputs = inputs_of(architecture, TINY, checkpoint)
    assert [(x.shape, x.dtype) for x in inputs] == [((3, 16), np.int32)] * 2
    assert [str(spec) for spec in architecture.input_specs(TINY)] == ["3x16xi32"] * 2
    assert len({row.tobytes() for row in inputs[0]}) == 3


def test_the_decoder_starts_with_the_start_token_and_reads_another_text(checkpoint):
    ids, decoder_ids = inputs_of(t5.ARCHITECTURE, TINY, checkpoint)
    assert (decoder_ids[:, 0] == 0).all()
    assert (decoder_ids[:, 1:] != 0).all()
    assert len({row.tobytes() for row in (*ids[:, :-1], *decoder_ids[:, 1:])}) == 6


def test_each_prompt_ends_in_padding(checkpoint):
    ids, mask = inputs_of(t5_for_cond_gen.ARCHITECTURE, TINY, checkpoint)
    assert mask.sum(axis=1).tolist() == [13, 8, 11]
    assert ((ids != 0) == (mask == 1)).all()


def test_a_prompt_without_room_for_padding_is_refused(checkpoint):
    with pytest.raises(DefinitionError, match="seq_len"):
        inputs_of(t5_for_cond_gen.ARCHITECTURE, {**TINY, "seq_len": 3}, checkpoint)


def test_lengths_that_the_seed_leaves_out_have_its_values():
    parameters = {"model_name": "t5-large", "data_type": "fp32", "batch_size": 2}
    assert t5.ARCHITECTURE.output_specs(parameters)[0].shape == (2, 512, 1024)
    tokens, logits = t5_for_cond_gen.ARCHITECTURE.output_specs(parameters)
    assert (tokens.shape, tokens.dtype) == ((2, 128), "i32")
    assert (logits.shape, logits.dtype) == ((2, 128, 32128), "f32")


def test_labels_tell_scoring_from_generating():
    short, long = ({**TINY, "max_new_tokens": new} for new in (4, 16))
    labels = [t5_for_cond_gen.ARCHITECTURE.label(item) for item in (short, long)]
    assert len({*labels, t5.ARCHITECTURE.label(TINY)}) == 3


def test_one_checkpoint_serves_scoring_and_generating():
    scoring, generating = (
        checkpoints.identity(module.ARCHITECTURE, TINY) for module in (t5, t5_for_cond_gen)
    )
    assert scoring == generating


@pytest.mark.parametrize("new", [0, -1, True, 1.5])
def test_a_number_of_new_tokens_that_is_none_is_refused(new):
    with pytest.raises(DefinitionError, match="max_new_tokens"):
        t5_for_cond_gen.ARCHITECTURE.output_specs({**TINY, "max_new_tokens": new})


def test_buckets_of_the_paper():
    # 32 buckets up to distance 128: 16 single distances, then ever wider ones; keys after the
    # query share bucket 0.
    distances = -np.arange(200)
    buckets = t5.relative_buckets(distances, count=32, longest=128, bidirectional=False)
    assert buckets[:17].tolist() == list(range(17))
    assert (np.diff(buckets) >= 0).all()
    assert buckets[127] == buckets[199] == 31
    assert (t5.relative_buckets(-distances, count=32, longest=128, bidirectional=False) == 0).all()


def test_both_directions_have_buckets_of_their_own():
    distances = np.array([-200, -128, -16, -1, 0, 1, 16, 128, 200])
    buckets = t5.relative_buckets(distances, count=32, longest=128, bidirectional=True)
    # 16 = 8 * (128 / 8)^(2 / 8): the first distance of the second bucket after the single ones.
    assert buckets.tolist() == [15, 15, 10, 1, 0, 17, 26, 31, 31]
