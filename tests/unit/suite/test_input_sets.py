"""Short and long inputs of every kind, and the cases that take them."""

import numpy as np
import pytest

from openxla.benchmark import testdata
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import DefinitionError, ModelTestData
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.preprocessing import element_type_of
from openxla.benchmark.workloads import workload_of

DEFAULT, SHORT, LONG = (
    testdata.INPUT_DATA_MODEL_DEFAULT,
    testdata.INPUT_DATA_SHORT,
    testdata.INPUT_DATA_LONG,
)
SETS = (DEFAULT, SHORT, LONG)
CASES = catalog.all_benchmarks()
SHORT_CASES = [case for case in CASES if case.input_data is SHORT]
TINY = [case for case in SHORT_CASES if "tiny" in case.tags]


def arrays_of(case, input_data):
    architecture = architectures.get(case.model.model_impl.architecture)
    parameters = architecture.complete(case.model.model_parameters)
    checkpoint = checkpoints.resolve(architecture, parameters)
    return architecture.preprocess(
        architecture.inputs(parameters, input_data.name), parameters, checkpoint
    )


def test_all_input_data_is_listed():
    assert set(SETS) <= set(testdata.ALL_INPUT_DATA)


def test_the_default_is_left_as_it_is():
    raw = object()
    assert testdata.vary(raw, DEFAULT.name) is raw


def test_a_text_is_cut_or_begins_in_its_middle():
    text = testdata.load_text()
    short, long = (testdata.vary(text, data.name) for data in (SHORT, LONG))
    assert short == "A photo of a cat lies on the desk beside the keyboard."
    assert text.startswith(short)
    assert sorted(long.split()) == sorted(text.split())
    assert long.split()[:50] != text.split()[:50]


def test_a_picture_is_cut_to_its_middle_or_turned():
    picture = testdata.load_image()
    short, long = (testdata.vary(picture, data.name) for data in (SHORT, LONG))
    assert short.shape == (128, 128, 3)
    assert np.array_equal(short, picture[64:192, 64:192])
    assert np.array_equal(long[0], picture[-1])


def test_a_sound_falls_silent_or_runs_backwards_and_the_original_stays():
    sound = np.linspace(1, 2, 10, dtype=np.float32)
    short, long = (testdata.vary(sound, data.name) for data in (SHORT, LONG))
    assert np.array_equal(short, [*sound[:5], 0, 0, 0, 0, 0])
    assert np.array_equal(long, sound[::-1])
    assert sound.all()


def test_noise_has_another_seed_and_parts_are_varied_each():
    assert [testdata.vary((0, "a b. c"), data.name) for data in (SHORT, LONG)] == [
        (1, "a b."),
        (2, "b. c a"),
    ]


@pytest.mark.parametrize("raw", [None, True, 0.5, {"text": ""}, np.zeros((2, 2), np.float32)])
def test_what_has_no_variant_reports_it(raw):
    with pytest.raises(DefinitionError, match="generate_inputs"):
        testdata.vary(raw, SHORT.name)


def test_unknown_input_data_is_refused_with_the_choices():
    with pytest.raises(DefinitionError, match="INPUT_DATA_SHORT, INPUT_DATA_LONG"):
        testdata.vary("a text", "INPUT_DATA_MIDDLE")


# Inputs are the architecture's: one framework shows it.
@pytest.mark.parametrize(
    "case", [case for case in TINY if "_JAX_" in case.name], ids=lambda case: case.model.name
)
def test_sets_have_the_declared_form_and_differ(case):
    found = [arrays_of(case, data) for data in SETS]
    for values in found:
        specs = [f"{'x'.join(map(str, v.shape))}x{element_type_of(v.dtype)}" for v in values]
        assert specs == [str(spec) for spec in workload_of(case).inputs]
        assert all(np.isfinite(value).all() for value in values)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert any(not np.array_equal(a, b) for a, b in zip(found[one], found[other]))


def test_a_short_text_is_padded_under_the_mask_and_a_long_one_is_not():
    [case] = [case for case in TINY if case.model.name.startswith("BERT_TINY_FP32_JAX")]
    lengths = [set(arrays_of(case, data)[1].sum(axis=1).tolist()) for data in SETS]
    assert lengths[0] == lengths[2] == {17, 22, 27, 28}
    assert min(lengths[1]) > 4
    assert max(lengths[1]) < 28


def test_each_set_is_a_workload_of_its_own_shared_by_the_frameworks():
    digests = {}
    for case in CASES:
        if case.input_data in (SHORT, LONG):
            name = case.name.replace("_PT_", "_").replace("_JAX_", "_").replace("_TF_", "_")
            digests.setdefault(workload_of(case).digest, set()).add(name)
    assert all(len(names) == 1 for names in digests.values())
    of_default = {workload_of(case).digest for case in CASES if case.input_data is DEFAULT}
    assert not of_default & set(digests)


def test_few_cases_have_them():
    assert len(SHORT_CASES) == sum(case.input_data is LONG for case in CASES)
    assert 20 <= len(SHORT_CASES) <= 0.05 * len(CASES)
    assert len({case.model.name for case in SHORT_CASES}) == len(SHORT_CASES)
    assert {case.data_type for case in SHORT_CASES} == {"fp32"}
    assert 0 < len(SHORT_CASES) - len(TINY) <= 6


def test_a_users_arrays_are_known_by_their_content_alone():
    case = TINY[0]
    digests = {
        workload_of(type(case).build(model=case.model, input_data=data)).digest
        for data in (
            ModelTestData(name="USER_1", source_url="/one", content_sha256="a" * 64),
            ModelTestData(name="USER_1", source_url="/other", content_sha256="a" * 64),
            ModelTestData(name="USER_1", source_url="/one", content_sha256="b" * 64),
        )
    }
    assert len(digests) == 2
