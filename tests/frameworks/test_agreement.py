"""All implementations of an architecture are the same model: their float64 outputs agree."""

import functools
import itertools
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import pytest
from agreement_support import (
    PACKAGES,
    is_installed,
    model_request,
    module_name,
    need,
    relative,
    run_models,
)

from comparative_benchmark.analysis.verification.verification import verify
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.models import architectures
from openxla.benchmark.models.preprocessing import element_type_of

pytestmark = pytest.mark.frameworks

# Programs of a framework. "graph" is a TensorFlow graph without XLA, which compiles faster.
EAGER, XLA, GRAPH = ("reference",), ("reference", "xla"), ("reference", "graph")
PLAIN = {"pt": EAGER, "jax": EAGER}
JITTED = {"pt": EAGER, "jax": XLA}
# Without JAX's reference, which compiles each operation and is slow for a large network.
COMPILED = {"pt": EAGER, "jax": ("xla",)}

# Largest error of a reference, relative to the scale of the truth.
REFERENCE_LIMITS = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 2e-1}


@attrs.frozen
class Model:
    """One size of an architecture.

    Attributes:
      architecture: name of the architecture.
      parameters: arguments of `create_model`, without `data_type`.
      programs: programs to verify, by data type and framework.
      truth_limit: largest difference of two float64 outputs, relative to their scale.
      fed_limit: the same for a free run and a run that is fed the same tokens.
      default: data types of the default tier; only the nightly tests run the others.
    """

    architecture: str
    parameters: Mapping[str, object]
    programs: Mapping[str, Mapping[str, Sequence[str]]]
    truth_limit: float = attrs.field(default=1e-9, kw_only=True)
    fed_limit: float = attrs.field(default=0.0, kw_only=True)
    default: Sequence[str] = attrs.field(default=("fp32",), kw_only=True)


IMAGES = {"batch_size": 4}
NEW_TOKENS = 5
TEXT = {"batch_size": 2, "seq_len": 24}
GENERATION = {**TEXT, "max_new_tokens": NEW_TOKENS}
MODELS = {
    "bert-tiny": Model(
        "bert",
        {"model_name": "bert-tiny", "seq_len": 32, "batch_size": 4},
        {"fp32": {**PLAIN, "tf": XLA}, "fp16": {**PLAIN, "tf": XLA}, "bf16": {**PLAIN, "tf": XLA}},
        truth_limit=1e-12,
        default=("fp32", "fp16", "bf16"),
    ),
    "resnet-tiny": Model(
        "resnet",
        {"model_name": "resnet-tiny", **IMAGES},
        {"fp32": {**PLAIN, "tf": XLA}, "fp16": PLAIN, "bf16": {**PLAIN, "tf": XLA}},
        truth_limit=1e-12,
    ),
    "vit-tiny": Model(
        "vit",
        {"model_name": "vit-tiny", **IMAGES},
        {"fp32": {**PLAIN, "tf": XLA}, "fp16": PLAIN, "bf16": {**PLAIN, "tf": XLA}},
        truth_limit=1e-12,
    ),
    "efficientnet-tiny": Model(
        "efficientnet",
        {"model_name": "efficientnet-tiny", **IMAGES},
        {"fp32": {**PLAIN, "tf": XLA}, "fp16": PLAIN},
        truth_limit=1e-12,
    ),
    # With more images, TensorFlow's reference is too far from the truth to pass verification.
    "efficientnet-tiny-one-image": Model(
        "efficientnet",
        {"model_name": "efficientnet-tiny"},
        {"bf16": {**PLAIN, "tf": XLA}},
        truth_limit=1e-12,
    ),
    "gpt2-tiny": Model(
        "gpt2",
        {"model_name": "gpt2-tiny", **TEXT},
        {"fp32": {**JITTED, "tf": GRAPH}, "fp16": JITTED, "bf16": JITTED},
    ),
    "llama-tiny": Model(
        "llama",
        {"model_name": "llama-tiny", **TEXT},
        {"fp32": {**JITTED, "tf": GRAPH}, "fp16": JITTED, "bf16": JITTED},
    ),
    "gemma-tiny": Model(
        "gemma",
        {"model_name": "gemma-tiny", **TEXT},
        {"fp32": {**JITTED, "tf": GRAPH}, "fp16": JITTED, "bf16": JITTED},
    ),
    "t5-tiny": Model(
        "t5",
        {"model_name": "t5-tiny", "seq_len": 48, "batch_size": 4},
        {"fp32": {**PLAIN, "tf": GRAPH}, "fp16": PLAIN, "bf16": PLAIN},
    ),
    "whisper-tiny": Model(
        "whisper",
        {"model_name": "whisper-tiny-test", "seq_len": 16, "batch_size": 4},
        {"fp32": {**JITTED, "tf": XLA}, "fp16": JITTED, "bf16": JITTED},
        default=(),
    ),
    "sd-clip-tiny": Model(
        "sd_clip",
        {"model_name": "sd-clip-tiny", "seq_len": 32, "batch_size": 4},
        {"fp32": {**JITTED, "tf": GRAPH}, "fp16": JITTED, "bf16": JITTED},
    ),
    "sd-unet-tiny": Model(
        "sd_unet",
        {"model_name": "sd-unet-tiny", "batch_size": 2},
        {"fp32": {**COMPILED, "tf": GRAPH}},
        default=(),
    ),
    "sd-unet-tiny-references": Model(
        "sd_unet",
        {"model_name": "sd-unet-tiny", **IMAGES},
        {"fp32": JITTED, "fp16": JITTED, "bf16": {**JITTED, "tf": GRAPH}},
        default=(),
    ),
    "sd-vae-tiny": Model(
        "sd_vae",
        {"model_name": "sd-vae-tiny", **IMAGES},
        {"fp32": {**JITTED, "tf": GRAPH}, "fp16": {**JITTED, "tf": GRAPH}, "bf16": JITTED},
        default=(),
    ),
    "sd-pipeline-tiny": Model(
        "sd_pipeline",
        {"model_name": "sd-pipeline-tiny", "seq_len": 16, "batch_size": 2},
        {"fp32": {**COMPILED, "tf": XLA}, "bf16": COMPILED},
        default=(),
    ),
    "gpt2-tiny-generation": Model(
        "gpt2",
        {"model_name": "gpt2-tiny", **GENERATION},
        {"fp32": {**JITTED, "tf": XLA}, "bf16": {**JITTED, "tf": XLA}},
    ),
    "llama-tiny-generation": Model(
        "llama",
        {"model_name": "llama-tiny", **GENERATION},
        {"fp32": {**JITTED, "tf": XLA}, "bf16": JITTED},
        default=(),
    ),
    "gemma-tiny-generation": Model(
        "gemma",
        {"model_name": "gemma-tiny", **GENERATION},
        {"fp32": {**JITTED, "tf": GRAPH}, "bf16": JITTED},
        default=(),
    ),
    "t5-tiny-generation": Model(
        "t5_for_cond_gen",
        {"model_name": "t5-tiny", **GENERATION, "seq_len": 32},
        {"fp32": {**PLAIN, "tf": GRAPH}, "fp16": {**PLAIN, "tf": XLA}, "bf16": PLAIN},
        fed_limit=1e-12,
        default=(),
    ),
    "gpt2-tiny-pipeline": Model(
        "gpt2_pipeline",
        {"model_name": "gpt2-tiny", "batch_size": 2, "max_new_tokens": NEW_TOKENS},
        {"fp32": {**COMPILED, "tf": GRAPH}},
        default=(),
    ),
    "bert-base": Model(
        "bert", {"model_name": "bert-base-uncased", "seq_len": 32}, {"fp32": PLAIN}, default=()
    ),
    "resnet-50": Model(
        "resnet", {"model_name": "microsoft/resnet-50"}, {"fp32": PLAIN}, default=()
    ),
    "vit-base": Model(
        "vit", {"model_name": "google/vit-base-patch16-224"}, {"fp32": PLAIN}, default=()
    ),
    "efficientnet-b0": Model(
        "efficientnet", {"model_name": "google/efficientnet-b0"}, {"fp32": PLAIN}, default=()
    ),
    "t5-small": Model("t5", {"model_name": "t5-small", "seq_len": 64}, {"fp32": PLAIN}, default=()),
}
CASES = {
    f"{name}-{data_type}": (model, data_type)
    for name, model in MODELS.items()
    for data_type in model.programs
}
GENERATING = [name for name, (model, _) in CASES.items() if "max_new_tokens" in model.parameters]
WITH_STEPS = [name for name in GENERATING if "tf" in CASES[name][0].programs[CASES[name][1]]]
# Decoders whose generating form is compared with their scoring form.
WITH_SCORING = [f"{name}-tiny-generation-fp32" for name in ("gpt2", "llama", "gemma")]
T5_SCORING = [name for name, (model, _) in CASES.items() if model.architecture == "t5"]
T5_GENERATING = [name for name in GENERATING if CASES[name][0].architecture == "t5_for_cond_gen"]


def _cases(names):
    """Returns parameters for pytest; nightly cases are marked."""
    return [
        pytest.param(name, marks=[] if data_type in model.default else [pytest.mark.nightly])
        for name in names
        for model, data_type in [CASES[name]]
    ]


class Outputs:
    """Arrays that each framework saved for one case; see `agreement_support.SCRIPT`.

    Attributes:
      model: the model of the case.
      architecture: its architecture.
      parameters: its parameters, with defaults.
      programs: programs to verify, by framework.
      judges: frameworks with a reference.
      folders: folders with the arrays, by framework.
      generates: whether the outputs are tokens and logits.
    """

    def __init__(self, model, data_type, folders):
        self.model = model
        self.architecture = architectures.get(model.architecture)
        given = {**model.parameters, "data_type": data_type}
        self.parameters = self.architecture.creation_parameters(given)
        self.programs = {name: model.programs[data_type][name] for name in folders}
        self.judges = [name for name in folders if "reference" in self.programs[name]]
        self.folders = folders
        self.generates = self.architecture.generates(self.parameters)

    def load(self, framework, stem):
        """Returns the arrays with that stem."""
        return array_files.load_all(self.folders[framework], stem)

    def load_each(self, stem):
        """Returns the arrays with that stem of each framework."""
        return [self.load(framework, stem) for framework in self.folders]

    def load_first_programs(self):
        """Returns the outputs of the first program of each framework."""
        return [self.load(framework, programs[0]) for framework, programs in self.programs.items()]

    def pairs(self, stem):
        """Returns the arrays with that stem of each two frameworks."""
        return itertools.combinations(self.load_each(stem), 2)

    def verified_files(self, framework, stem):
        """Returns the file of the only output, or of the logits of a generating model."""
        return array_files.numbered(self.folders[framework], stem)[-1:]


@pytest.fixture(scope="module")
def run_case(tmp_path_factory, environment):
    """Returns a function that runs a case once in each installed framework."""

    @functools.cache
    def run(name):
        model, data_type = CASES[name]
        if model.architecture.startswith("sd_"):
            need("diffusers")
        folders = {}
        for framework, programs in model.programs[data_type].items():
            if not is_installed(PACKAGES[framework]):
                continue
            folders[framework] = tmp_path_factory.mktemp(f"{name}-{framework}")
            request = model_request(
                module_name(framework, model.architecture),
                {**model.parameters, "data_type": data_type},
                folders[framework],
                programs=programs,
                scoring=name in WITH_SCORING,
            )
            run_models(framework, [request], environment)
        if len(folders) < 2:
            pytest.skip("fewer than two frameworks are installed")
        return Outputs(model, data_type, folders)

    return run


@pytest.fixture(params=_cases(CASES))
def outputs(request, run_case):
    """Returns the `Outputs` of a case."""
    return run_case(request.param)


@pytest.mark.parametrize("package", PACKAGES.values())
def test_framework_is_installed(package):
    need(package)  # The other tests leave out frameworks that are not installed.


def test_float64_outputs_agree(outputs):
    for left, right in outputs.pairs("truth"):
        assert len(left) == len(right) == (2 if outputs.generates else 1)
        assert left[-1].dtype == right[-1].dtype == np.float64
        assert left[-1].shape == right[-1].shape
        assert relative(left[-1], right[-1]) < outputs.model.truth_limit


def test_inputs_are_the_same_bytes(outputs):
    specs = outputs.architecture.input_specs(outputs.parameters)
    for left, right in outputs.pairs("input"):
        assert len(left) == len(right) == len(specs)
        for mine, theirs in zip(left, right, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            assert mine.tobytes() == theirs.tobytes()


def test_outputs_carry_signal(outputs):
    for *_, truth in outputs.load_each("truth"):
        assert 0.3 < truth.std() < 3
        for row in truth[1:]:
            assert np.abs(truth[0] - row).max() > 0.1 * truth.std()


def test_outputs_have_the_declared_types_and_shapes(outputs):
    specs = outputs.architecture.output_specs(outputs.parameters)
    declared = [(spec.dtype, spec.shape) for spec in specs]
    for framework, programs in outputs.programs.items():
        for program in programs:
            values = outputs.load(framework, program)
            assert [(element_type_of(x.dtype), x.shape) for x in values] == declared, program


def test_references_are_near_the_truth(outputs):
    limit = REFERENCE_LIMITS[outputs.parameters["data_type"]]
    for framework in outputs.judges:
        reference, truth = (outputs.load(framework, stem)[-1] for stem in ("reference", "truth"))
        assert 0 < relative(reference, truth) < limit, framework


def test_every_program_passes_verification_by_every_framework(outputs):
    for judge in outputs.judges:
        truth, reference = (outputs.verified_files(judge, stem) for stem in ("truth", "reference"))
        for framework, programs in outputs.programs.items():
            for program in programs:
                verdict = verify(outputs.verified_files(framework, program), truth, reference)
                assert verdict.passed, (judge, framework, program, verdict)
                assert verdict.relative_rmse > 0


@pytest.mark.parametrize("outputs", _cases(T5_SCORING), indirect=True)
def test_t5_outputs_depend_on_the_tokens(outputs):
    for [truth] in outputs.load_each("truth"):
        # The part that all tokens share does not depend on the input.
        assert truth.mean(axis=(0, 1)).std() < 0.8 * truth.std()


@pytest.mark.parametrize("outputs", _cases(GENERATING), indirect=True)
def test_frameworks_choose_the_same_tokens(outputs):
    for left, right in outputs.pairs("free"):
        assert left[0].dtype == right[0].dtype == np.int32
        np.testing.assert_array_equal(left[0], right[0])
        assert left[1].dtype == right[1].dtype == np.float64
        assert relative(left[1], right[1]) < outputs.model.truth_limit


@pytest.mark.parametrize("outputs", _cases(GENERATING), indirect=True)
def test_each_token_has_the_largest_logit(outputs):
    for stem in ("free", "truth", "other"):
        for tokens, logits in outputs.load_each(stem):
            np.testing.assert_array_equal(tokens, logits.argmax(axis=-1))


@pytest.mark.parametrize("outputs", _cases(GENERATING), indirect=True)
def test_generated_tokens_vary(outputs):
    for tokens, _ in outputs.load_each("free"):
        assert tokens.shape == (2, NEW_TOKENS)
        assert tokens[0].tolist() != tokens[1].tolist()
        assert len(np.unique(tokens)) > 2
        # The pipeline repeats one token after its short prompt.
        if outputs.model.architecture != "gpt2_pipeline":
            assert min(len(np.unique(row)) for row in tokens) > 2


@pytest.mark.parametrize("outputs", _cases(GENERATING), indirect=True)
def test_generated_logits_are_float32(outputs):
    for _, logits in outputs.load_first_programs():
        assert logits.dtype == np.float32


@pytest.mark.parametrize("outputs", _cases(GENERATING), indirect=True)
def test_feeding_the_chosen_tokens_changes_nothing(outputs):
    for free, fed in zip(outputs.load_each("free"), outputs.load_each("truth"), strict=True):
        np.testing.assert_array_equal(free[0], fed[0])
        assert relative(free[1], fed[1]) <= outputs.model.fed_limit


@pytest.mark.parametrize("outputs", _cases(GENERATING), indirect=True)
def test_other_tokens_change_the_later_logits_only(outputs):
    # Row 0 feeds other tokens from the first on, row 1 from the second on.
    for (_, other), (_, reference) in zip(
        outputs.load_each("other"), outputs.load_first_programs(), strict=True
    ):
        differences = np.abs(other - reference).max(axis=2)
        for row in (0, 1):
            assert (differences[row, : row + 1] == 0).all()
            assert (differences[row, row + 1 :] > 0.1 * reference.std()).all()


@pytest.mark.parametrize("outputs", _cases(T5_GENERATING), indirect=True)
def test_padding_is_not_attended_to(outputs):
    for _, mask in outputs.load_each("input"):
        assert (mask == 0).any()
    for padded, own in zip(outputs.load_each("padded"), outputs.load_first_programs(), strict=True):
        for left, right in zip(padded, own, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("outputs", _cases(WITH_STEPS), indirect=True)
def test_prefill_and_decode_are_the_steps_of_generation(outputs):
    need("tensorflow")
    _, reference = outputs.load("tf", "reference")
    steps = outputs.load("tf", "steps")
    assert len(steps) == 3
    for index, logits in enumerate(steps):
        np.testing.assert_array_equal(logits, reference[:, index])


@pytest.mark.parametrize("outputs", _cases(WITH_SCORING), indirect=True)
def test_cached_logits_match_those_of_the_whole_sequence(outputs):
    for (_, cached), [whole] in zip(
        outputs.load_each("free"), outputs.load_each("whole"), strict=True
    ):
        assert relative(cached, whole[:2, -NEW_TOKENS:]) < 1e-9


@pytest.mark.parametrize("outputs", _cases(WITH_SCORING), indirect=True)
def test_a_token_changes_only_its_own_and_later_logits(outputs):
    for [whole] in outputs.load_each("whole"):
        original, _, first_changed, last_changed = whole
        assert relative(first_changed[-1], original[-1]) > 0.01
        assert relative(last_changed[:-1], original[:-1]) < 1e-9
        assert relative(last_changed[-1], original[-1]) > 0.1
