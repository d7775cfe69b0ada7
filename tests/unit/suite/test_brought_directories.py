"""Hugging Face directories without a framework: usual inputs, pipelines and adapters."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from openxla.benchmark import bounded
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.checkpoint_tensors import write_safetensors
from openxla.benchmark.user_models import (
    ModelOptions,
    Recorded,
    UserModelError,
    command_words,
    definitions,
    find_cases,
)
from openxla.benchmark.user_models.cases import find_cases_bounded
from openxla.benchmark.user_models.hugging_face import companion_formats
from openxla.benchmark.user_models.hugging_face.usual_inputs import Taken, arrays, with_places
from openxla.benchmark.user_models.model_options import parse_spec
from openxla.benchmark.workloads import workload_of

LORA = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["query"]}
QUERY = "base_model.model.encoder.layer.0.attention.self.query"


@pytest.fixture
def bert(tmp_path):
    target = tmp_path / "bert"
    shutil.copytree(checkpoints.seeded(architectures.get("bert"), "bert-tiny"), target)
    return target


@pytest.fixture
def pipeline(bert):
    """Makes a directory of sentence-transformers."""

    def make(pooling, *more):
        kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), *more]
        entries = [
            {"type": kind if "." in kind else f"sentence_transformers.models.{kind}", "path": path}
            for kind, path in kinds
        ]
        (bert / "modules.json").write_text(json.dumps(entries))
        (bert / "1_Pooling").mkdir(exist_ok=True)
        (bert / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        return bert

    return make


@pytest.fixture
def adapter(tmp_path, bert):
    """Makes a directory of an adapter."""

    def make(tensors=None, **config):
        target = tmp_path / "adapter"
        target.mkdir(exist_ok=True)
        whole = {**LORA, "base_model_name_or_path": f"../{bert.name}", **config}
        (target / "adapter_config.json").write_text(json.dumps(whole))
        usual = {f"{QUERY}.lora_A.weight": (4, 128), f"{QUERY}.lora_B.weight": (128, 4)}
        shapes = tensors if tensors is not None else usual
        write_safetensors(
            target / "adapter_model.safetensors",
            {name: ("F32", shape) for name, shape in shapes.items()},
            lambda name: np.full(shapes[name], 0.5, np.float32),
        )
        return target

    return make


def config(**keys):
    """Returns a stand-in for a configuration of transformers."""
    return SimpleNamespace(model_type="any", **keys)


def taken(main, arguments, of, **more):
    """Returns the inputs of a model; arguments with a `*` are required."""
    names = {name.rstrip("*"): name.endswith("*") for name in arguments.split()}
    return Taken(arguments=names, main=main, config=of, kind="Net", **more)


TEXT = config(vocab_size=100, max_position_embeddings=40)


@pytest.mark.parametrize(
    ("main", "arguments", "of", "due"),
    [
        (
            "input_ids",
            "input_ids attention_mask token_type_ids",
            TEXT,
            {"input_ids": "i32[2,40]<100", "attention_mask": "i32[2,40]=1"},
        ),
        (
            "input_ids",
            "input_ids attention_mask decoder_input_ids",
            config(
                is_encoder_decoder=True, encoder=TEXT, decoder=config(vocab_size=9, n_positions=5)
            ),
            {
                "input_ids": "i32[2,40]<100",
                "attention_mask": "i32[2,40]=1",
                "decoder_input_ids": "i32[2,5]<9",
            },
        ),
        (
            "pixel_values",
            "pixel_values",
            config(image_size=[8, 16], num_channels=1),
            {"pixel_values": "f32[2,1,8,16]"},
        ),
        (
            "pixel_values",
            "pixel_values* bool_masked_pos",
            config(image_size=8, num_frames=4),
            {"pixel_values": "f32[2,4,3,8,8]"},
        ),
        ("input_values", "input_values", config(conv_dim=[1], conv_stride=[5]), "f32[2,16000]"),
        (
            "input_values",
            "input_values",
            config(num_mel_bins=32, max_length=64, patch_size=8),
            "f32[2,64,32]",
        ),
        (
            "input_features",
            "input_features",
            config(num_mel_bins=16, max_source_positions=50),
            "f32[2,16,100]",
        ),
        ("input_features", "input_features*", config(feature_projection_input_dim=160), None),
        (
            "past_values",
            " ".join(
                [
                    *("past_values*", "past_time_features*", "past_observed_mask*"),
                    *("future_values", "future_time_features", "static_categorical_features"),
                ]
            ),
            config(
                prediction_length=3,
                context_length=6,
                lags_sequence=[1, 4],
                num_time_features=2,
                num_static_categorical_features=1,
                cardinality=[7],
            ),
            {
                "past_values": "f32[2,10]",
                "past_time_features": "f32[2,10,2]",
                "past_observed_mask": "f32[2,10]=1",
                "future_values": "f32[2,3]",
                "future_time_features": "f32[2,3,2]",
                "static_categorical_features": "i32[2,1]<7",
            },
        ),
    ],
)
def test_usual_inputs_follow_from_forward_and_configuration(main, arguments, of, due):
    got = taken(main, arguments, of, batch=2).inputs({})
    if due is None:
        due = "f32[2,128,160]"
    assert got == (due if isinstance(due, dict) else {main: due})


def test_a_length_that_is_wanted_and_positions_that_are_reserved_count():
    arguments = "input_ids attention_mask"
    assert taken("input_ids", arguments, TEXT, seq=7).inputs({})["input_ids"] == "i32[1,7]<100"
    short = taken("input_ids", arguments, TEXT, reserved=2).inputs({})
    assert short["input_ids"] == "i32[1,38]<100"


def test_text_next_to_a_picture_ends_once():
    both = config(text_config=config(vocab_size=5, eos_token_id=2), vision_config=config())
    both.vision_config.image_size = 8
    got = arrays(
        taken("input_ids", "input_ids pixel_values attention_mask", both, batch=4).inputs({})
    )
    assert list(got) == ["input_ids", "attention_mask", "pixel_values"]
    assert (got["input_ids"][:, -1] == 2).all()
    assert (got["input_ids"] == 2).sum() == 4
    assert got["pixel_values"].shape == (4, 3, 8, 8)


def test_boxes_have_an_area_and_lie_on_the_page():
    page = config(vocab_size=9, max_position_embeddings=500, max_2d_position_embeddings=50)
    boxes = arrays(taken("input_ids", "input_ids bbox", page).inputs({}))["bbox"]
    assert boxes.shape == (1, 128, 4)
    assert (boxes[..., :2] <= boxes[..., 2:]).all()
    assert boxes.min() >= 0
    assert 25 < boxes.max() < 50


def test_a_picture_gets_places_after_the_first_token():
    ids = np.array([[5, 6, 9, 7]], np.int32)  # 9 represents a picture, and is drawn by chance
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    got = with_places(inputs, config(image_token_id=9), 3)
    assert got["input_ids"].tolist() == [[5, 9, 9, 9, 6, 0, 7]]
    assert got["attention_mask"].tolist() == [[1] * 7]


def test_a_picture_has_no_sequence_length(tmp_path):
    vit = tmp_path / "vit"
    shutil.copytree(checkpoints.seeded(architectures.get("vit"), "vit-tiny"), vit)
    assert find_cases(str(vit), ModelOptions()).cases
    with pytest.raises(UserModelError, match="vit takes images, which have no sequence length"):
        find_cases(str(vit), ModelOptions(seq_lens=(16,)))


def test_what_no_key_decides_is_asked_for_by_name():
    model = taken("input_ids", "input_ids image* rows* flags", TEXT)
    with pytest.raises(
        UserModelError, match=r"of Net does not determine image, rows; describe each"
    ):
        model.inputs({})
    given = {spec.name: spec for spec in map(parse_spec, ["image=f32[1,3,8,8]", "rows = i32[4]<9"])}
    got = arrays(model.inputs(given))
    assert got["image"].shape == (1, 3, 8, 8)
    assert got["rows"].max() < 9
    with pytest.raises(
        UserModelError, match="--input pixels: Net takes no such argument; it takes "
    ):
        model.inputs({"pixels": parse_spec("pixels=f32[1]")})


def test_a_directory_with_inputs_by_name_runs_in_pytorch(bert):
    got = find_cases(
        str(bert), ModelOptions(inputs=("input_ids=i32[batch,8]<50",), batch_sizes=(1, 4))
    )
    assert "runs only in PyTorch: --input uses the argument names" in got.remarks[0]
    assert [case.model.model_parameters["inputs"] for case in got.cases] == [
        "input_ids=i32[1,8]<50",
        "input_ids=i32[4,8]<50",
    ]
    words = command_words(
        Recorded(
            model=got.cases[1].model.name,
            parameters=got.cases[1].model.model_parameters,
            framework="pytorch",
            input_data=got.cases[1].input_data.name,
        )
    )
    assert words.endswith("--input 'input_ids=i32[batch,8]<50' --batch 4")


@pytest.mark.parametrize(
    ("pooling", "due"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": True}, "cls, mean"),  # the mean is on by default
        ({"word_embedding_dimension": 128}, "mean"),
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
        ({"pooling_mode": ["lasttoken", "max"]}, "max, lasttoken"),
        ({"pooling_mode": "mean+mean_sqrt_len_tokens"}, "mean, mean_sqrt_len"),
    ],
)
def test_a_pipeline_names_its_pooling(pipeline, pooling, due):
    directory = pipeline(pooling, ("Normalize", "2_Normalize"))
    got = find_cases(str(directory), ModelOptions())
    (case,) = got.cases
    assert case.model.name == "BERT_SENTENCE_EMBEDDING_FP32_PT"
    assert case.model.model_impl.name == "bert.AutoModel.Pooling.Normalize"
    assert f"pipeline (Transformer, Pooling ({due}), Normalize)" in got.remarks[0]


def test_a_pipeline_is_known_by_all_of_its_files(pipeline):
    directory = pipeline({"pooling_mode": "cls"})
    first = workload_of(find_cases(str(directory), ModelOptions()).cases[0]).digest
    pipeline({"pooling_mode": "max"})
    assert workload_of(find_cases(str(directory), ModelOptions()).cases[0]).digest != first
    alone = find_cases(str(directory), ModelOptions(task="feature-extraction"))
    assert len(alone.cases) == 3
    assert "runs without its pipeline (Transformer, Pooling (max))" in alone.remarks[0]


def test_a_transformer_may_lie_in_its_own_folder(pipeline):
    directory = pipeline({"pooling_mode": "cls"})
    entries = json.loads((directory / "modules.json").read_text())
    entries[0]["path"] = "0_Transformer"
    (directory / "modules.json").write_text(json.dumps(entries))
    (directory / "0_Transformer").mkdir()
    for name in ("config.json", "model.safetensors"):
        (directory / name).rename(directory / "0_Transformer" / name)
    (case,) = find_cases(str(directory), ModelOptions()).cases
    assert case.model.name == "BERT_SENTENCE_EMBEDDING_FP32_PT"


@pytest.mark.parametrize(
    ("pooling", "more", "words"),
    [
        ({"pooling_mode": "middle"}, (), "unknown pooling_mode 'middle'; choices are cls, max"),
        ({"pooling_mode_first": True}, (), "unknown pooling_mode_first; choices are"),
        ({"pooling_mode_mean_tokens": False}, (), "has no pooling mode"),
        ({}, (("WordWeights", ""),), "of type sentence_transformers.models.WordWeights are not"),
        ({}, (("mine.Pooling", ""),), "modules of type mine.Pooling are not supported"),
        ({}, (("Dense", "2_Dense"),), "names a Dense, but "),
        ({}, (("Dense", "../2_Dense"),), "which is outside its directory"),
    ],
)
def test_a_pipeline_that_cannot_be_followed_gives_the_reason(pipeline, pooling, more, words):
    directory = pipeline(pooling, *more)
    with pytest.raises(UserModelError) as caught:
        find_cases(str(directory), ModelOptions())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pickled_weights_of_a_module_need_consent(pipeline):
    directory = pipeline({}, ("Dense", "2_Dense"))
    (directory / "2_Dense").mkdir()
    (directory / "2_Dense" / "config.json").write_text("{}")
    (directory / "2_Dense" / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(UserModelError, match="is a pickle, which can run code when loaded"):
        companion_formats.read_pipeline(directory)
    (case,) = find_cases(str(directory), ModelOptions(allow_code=True)).cases
    assert case.model.model_parameters["pickled"] is True


@pytest.mark.parametrize(
    "name", ["modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors", "config.json"]
)
def test_a_pointer_in_place_of_a_part_is_named(pipeline, name):
    directory = pipeline({}, ("Dense", "2_Dense"))
    (directory / "2_Dense").mkdir()
    (directory / "2_Dense" / "config.json").write_text("{}")
    (directory / "2_Dense" / "model.safetensors").write_text("{}")
    (directory / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(UserModelError, match=rf"{name} is a Git LFS pointer; run `git lfs pull`"):
        find_cases(str(directory), ModelOptions())


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_page_in_place_of_an_adapter_is_named(adapter, name):
    directory = adapter()
    (directory / name).write_text("<!doctype html><html></html>")
    with pytest.raises(UserModelError, match=rf"{name} is an HTML page; download it again"):
        find_cases(str(directory), ModelOptions())


def test_an_adapter_runs_on_its_base_and_is_named_again(adapter, bert, tmp_path):
    directory = adapter()
    got = find_cases(str(directory), ModelOptions())
    (case,) = got.cases
    assert case.model.name == "ADAPTER_FP32_PT"
    assert case.model.model_impl.name == "bert.BertModel.LoRA"
    assert got.remarks == ["adapter runs only in PyTorch: its LoRA adapter is merged into bert"]
    parameters = case.model.model_parameters
    assert parameters["base"] == str(bert)
    words = command_words(
        Recorded(
            model=case.model.name,
            parameters=parameters,
            framework="pytorch",
            input_data=case.input_data.name,
        )
    )
    assert words.endswith(f"--base {bert}")
    # The path of the base is not part of the identity; its content is.
    moved = tmp_path / "elsewhere"
    bert.rename(moved)
    again = find_cases(str(directory), ModelOptions(base=moved)).cases[0]
    assert workload_of(again).digest == workload_of(case).digest
    adapter(lora_alpha=9)
    assert workload_of(find_cases(str(directory), ModelOptions(base=moved)).cases[0]).digest != (
        workload_of(case).digest
    )


def test_the_deadline_allows_for_linked_weights_and_for_the_base(adapter, bert, monkeypatch):
    linked = bert.with_name("linked")
    linked.mkdir()
    for file in bert.iterdir():
        (linked / file.name).symlink_to(file)
    deadlines = []
    monkeypatch.setattr(bounded, "call", lambda *_, deadline_s: deadlines.append(deadline_s))
    for path in (linked, adapter()):
        find_cases_bounded(str(path), ModelOptions())
    weights = (bert / "model.safetensors").stat().st_blocks * 512
    assert weights > 0
    assert min(deadlines) >= bounded.DEADLINE_S + weights / 50e6


def test_an_adapter_without_its_base_says_which_it_needs(adapter, bert, tmp_path):
    directory = adapter(base_model_name_or_path="owner/bert-base")
    with pytest.raises(
        UserModelError, match="adapter is a LoRA adapter of owner/bert-base; pass --base DIR"
    ):
        find_cases(str(directory), ModelOptions())
    with pytest.raises(UserModelError, match="is not a Hugging Face directory"):
        find_cases(str(directory), ModelOptions(base=tmp_path / "nowhere"))
    with pytest.raises(UserModelError, match="--base requires a LoRA adapter"):
        find_cases(str(bert), ModelOptions(base=bert))
    shutil.copy(directory / "adapter_config.json", bert)
    with pytest.raises(UserModelError, match="contains a model and an adapter"):
        find_cases(str(bert), ModelOptions())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"peft_type": "IA3"}, "adapters of type IA3 are not supported; merge it into its base"),
        ({"use_dora": True}, "DoRA adapters are not supported"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights 'pissa' is not supported"),
        ({"use_qalora": True}, "use_qalora is not supported"),
        ({"layer_replication": [[0, 1]]}, "layer_replication is not supported"),
        ({"r": 8}, "has factors of rank 4, but adapter_config.json requires 8"),
        ({"rank_pattern": {"query": 2}}, "has factors of rank 4, but"),
        ({"lora_alpha": "much"}, "adapter_config.json is malformed: could not convert"),
        (
            {"tensors": {f"{QUERY}.lora_A.weight": (4, 8), f"{QUERY}.lora_B.weight": (8, 3)}},
            "factors of 4x8 and 8x3, which cannot be multiplied",
        ),
        ({"tensors": {f"{QUERY}.lora_A.weight": (4, 8)}}, f"lacks {QUERY}.lora_B"),
        ({"tensors": {"classifier.weight": (4, 8)}}, "has no factors lora_A and lora_B"),
    ],
)
def test_an_adapter_of_another_kind_or_form_is_refused_by_name(adapter, changed, words):
    directory = adapter(**changed)
    with pytest.raises(UserModelError) as caught:
        find_cases(str(directory), ModelOptions())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_an_adapter_adds_is_the_scaled_product_of_its_factors(adapter):
    tensors = {
        f"{QUERY}.lora_A.weight": (4, 6),
        f"{QUERY}.lora_B.weight": (5, 4),
        "base_model.model.words.lora_embedding_A": (4, 9),
        "base_model.model.words.lora_embedding_B": (3, 4),
        "base_model.model.conv.lora_A.weight": (4, 2, 3, 3),
        "base_model.model.conv.lora_B.weight": (7, 4, 1, 1),
        "base_model.model.classifier.modules_to_save.weight": (2, 2),
        "base_model.model.encoder.base_layer.bias": (2,),
    }
    directory = adapter(tensors, use_rslora=True, alpha_pattern={"conv": 2})
    got = companion_formats.read_adapter(directory).merged()
    deltas = dict(got.deltas())
    assert {name: value.shape for name, value in deltas.items()} == {
        QUERY.removeprefix("base_model.model."): (5, 6),
        "words": (9, 3),
        "conv": (7, 2, 3, 3),
    }
    # Each product is a sum of four times 0.5 * 0.5.
    assert np.allclose(deltas["words"], 8 / 4**0.5)
    assert np.allclose(deltas["conv"], 2 / 4**0.5)
    assert set(got.replaced) == {"classifier.weight", "encoder.bias"}


def test_a_base_is_saved_as_a_path_from_the_definitions(adapter, bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = adapter(base_model_name_or_path="gone")
    wanted = ModelOptions(base=Path("bert"))
    made = definitions("adapter", wanted, find_cases("adapter", wanted).cases, tmp_path / "suite")
    made.write()
    assert str(tmp_path) not in made.content
    scope = {"__file__": str(made.file)}
    exec(compile(made.file.read_text(), str(made.file), "exec"), scope)
    (case,) = scope["ALL_BENCHMARKS"]
    assert case.model.model_parameters["base"] == str(bert)
    assert directory.is_dir()
