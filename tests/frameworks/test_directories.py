"""Hugging Face directories of the usual kinds run on their usual inputs, and whole."""

import json

import pytest
from agreement_support import need
from framework_process import run_script
from tests_support import run_cbs

pytestmark = pytest.mark.frameworks

# Shared by the scripts: small configurations, and the preparation of a directory.
TINY = """
import json, pathlib, sys
import numpy as np, torch, transformers as t
from comparative_benchmark.pt_inductor import reference
from comparative_benchmark.engine.worker.preparing import make_inputs
from openxla.benchmark import user_models
from openxla.benchmark.user_models.hugging_face import in_transformers
t.utils.logging.set_verbosity_error()
t.utils.logging.disable_progress_bar()
torch.manual_seed(0)
here = pathlib.Path(sys.argv[1])
layers = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
text = dict(vocab_size=128, max_position_embeddings=64, **layers)
vision = dict(image_size=32, patch_size=8, **layers)
seq2seq = dict(
    d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64)
speech = dict(
    vocab_size=32, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2),
    num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, **layers)

def prepared(name, **wanted):
    wanted = user_models.ModelOptions(framework="pt", **wanted)
    (case,) = user_models.find_cases(str(here / name), wanted).cases
    model = in_transformers.create_model(**case.model.model_parameters)
    inputs = make_inputs(model, case.input_data.name, [])
    model.try_out(*inputs)
    return model, inputs

def refused(name, **wanted):
    try:
        prepared(name, **wanted)
    except user_models.UserModelError as error:
        return str(error)

def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))

def answer(**values):
    (here / "answer.json").write_text(json.dumps(values))
"""
KINDS = (
    TINY
    + """
parts = dict(
    clip=lambda: t.CLIPModel(t.CLIPConfig(
        text_config={**text, "max_position_embeddings": 16, "eos_token_id": 3},
        vision_config=vision, projection_dim=16)),
    wav2vec2=lambda: t.Wav2Vec2ForCTC(t.Wav2Vec2Config(**speech)),
    bart=lambda: t.BartForSequenceClassification(t.BartConfig(
        vocab_size=128, max_position_embeddings=64, **seq2seq)),
    whisper=lambda: t.WhisperModel(t.WhisperConfig(
        vocab_size=128, num_mel_bins=16, max_source_positions=50, max_target_positions=32,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, **seq2seq)),
    captions=lambda: t.VisionEncoderDecoderModel(
        encoder=t.ViTModel(t.ViTConfig(**vision)),
        decoder=t.BertLMHeadModel(t.BertConfig(
            **text, is_decoder=True, add_cross_attention=True))),
    layoutlm=lambda: t.LayoutLMForTokenClassification(t.LayoutLMConfig(
        **text, max_2d_position_embeddings=100)),
    tapas=lambda: t.TapasModel(t.TapasConfig(
        **text, type_vocab_sizes=[3, 8, 8, 2, 8, 8, 4])),
    spectrogram=lambda: t.ASTForAudioClassification(t.ASTConfig(
        max_length=64, num_mel_bins=32, **layers)),
    series=lambda: t.TimeSeriesTransformerForPrediction(t.TimeSeriesTransformerConfig(
        prediction_length=6, context_length=12, lags_sequence=[1, 2, 3], num_time_features=2,
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32)),
    llava=lambda: t.LlavaForConditionalGeneration(t.LlavaConfig(
        text_config=t.LlamaConfig(num_key_value_heads=2, **text),
        vision_config=t.CLIPVisionConfig(**vision), image_token_id=127, vision_feature_layer=-1)),
    norms=lambda: t.LlamaForCausalLM(t.LlamaConfig(
        num_key_value_heads=2, attention_bias=True, **text)),
    experts=lambda: t.MixtralForCausalLM(t.MixtralConfig(
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, **text)),
    answers=lambda: t.BertForQuestionAnswering(t.BertConfig(**text)),
    tables=lambda: t.PerceiverForMaskedLM(t.PerceiverConfig(
        vocab_size=64, d_model=16, d_latents=16, num_latents=4, num_blocks=1,
        num_self_attends_per_block=1, num_self_attention_heads=2, num_cross_attention_heads=2,
        max_position_embeddings=32, qk_channels=16, v_channels=16)),
)
found = {}
for name, make in parts.items():
    make().eval().save_pretrained(here / name)
    if name == "tables":
        continue
    model, inputs = prepared(name, batch_sizes=(2,))
    truth, own = reference.compute(model, inputs)
    found[name] = dict(
        inputs={key: value.shape for key, value in zip(model.names, inputs)},
        outputs=[value.shape for value in own],
        remark=reference.remark(model, inputs) if name == "norms" else None,
        error=max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(truth, own)),
    )
_, (ids, *_) = prepared("clip")
_, (boxes,) = prepared("layoutlm")[0], prepared("layoutlm")[1][2:]
_, (image_ids, *_) = prepared("llava")
named, given = prepared("tables", inputs=("inputs=i32[batch,32]<64",), batch_sizes=(3,))
answer(
    found=found,
    last_token=int(ids[0, -1]),
    has_area=bool((boxes[..., 2:] >= boxes[..., :2]).all()),
    places=int((image_ids == 127).sum()),
    tables=refused("tables"),
    named=[named.names, given[0].shape],
    unknown=refused("layoutlm", inputs=("boxes=i32[1,32,4]=1",)),
    too_large=refused("layoutlm", inputs=("bbox=i32[1,32,4]=5000",)),
)
"""
)
SENTENCES = (
    TINY
    + """
from safetensors.numpy import save_file
modes = ["cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens",
    "lasttoken"]
def pipeline(name, pooling, *more):
    t.BertModel(t.BertConfig(**text)).eval().save_pretrained(here / name)
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), *more]
    package = "sentence_transformers.models."
    write(here / name / "modules.json", [dict(type=package + k, path=p) for k, p in kinds])
    write(here / name / "1_Pooling" / "config.json", pooling)

random = np.random.default_rng(3)
ids = random.integers(4, 128, (3, 9)).astype(np.int32)
mask = np.ones((3, 9), np.int32)
mask[1, 5:] = mask[2, :4] = 0  # one row is padded behind, one in front

def expected(hidden, mode):
    rows = []
    for row, is_real in zip(hidden, mask.astype(bool)):
        real, places = row[is_real], np.arange(1, 10)[is_real, None]
        rows.append(dict(
            cls_token=lambda: row[0], max_tokens=lambda: real.max(0),
            mean_tokens=lambda: real.mean(0),
            mean_sqrt_len_tokens=lambda: real.sum(0) / len(real) ** 0.5,
            weightedmean_tokens=lambda: (real * places).sum(0) / places.sum(),
            lasttoken=lambda: real[-1],
        )[mode]())
    return np.stack(rows)

def hidden_of(model):
    output = model.module(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask))
    return output.last_hidden_state.detach().numpy()

errors = {}
def compare(name, model, due):
    own = model.forward(ids, mask).numpy()
    assert own.shape == due.shape, (name, own.shape, due.shape)
    errors[name] = float(np.abs(own - due).max())

for mode in modes:
    pipeline(mode, {f"pooling_mode_{other}": other == mode for other in modes})
    model, _ = prepared(mode)
    compare(mode, model, expected(hidden_of(model), mode))
pipeline("all", {f"pooling_mode_{mode}": True for mode in modes})
model, _ = prepared("all")
compare("all", model, np.concatenate([expected(hidden_of(model), mode) for mode in modes], 1))
pipeline("named", dict(pooling_mode=["mean", "cls"]), ("Dense", "2_Dense"), ("Normalize", "3"))
weights = {"linear.weight": random.normal(size=(5, 64)).astype(np.float32),
    "linear.bias": random.normal(size=5).astype(np.float32)}
dense = dict(in_features=64, out_features=5, bias=True,
    activation_function="torch.nn.modules.activation.Tanh")
write(here / "named" / "2_Dense" / "config.json", dense)
save_file(weights, here / "named" / "2_Dense" / "model.safetensors")
model, _ = prepared("named")
hidden = hidden_of(model)
joined = np.concatenate([expected(hidden, mode) for mode in ("cls_token", "mean_tokens")], 1)
due = np.tanh(joined @ weights["linear.weight"].T + weights["linear.bias"])
compare("named", model, due / np.linalg.norm(due, axis=1, keepdims=True))
write(here / "named" / "2_Dense" / "config.json", dict(dense, activation_function="os.system"))
strange = refused("named")
write(here / "named" / "2_Dense" / "config.json", dict(dense, in_features=60))
answer(errors=errors, strange=strange, shape=refused("named"))
"""
)
ADAPTERS = (
    TINY
    + """
from safetensors.numpy import save_file
random = np.random.default_rng(5)
def normal(*shape):
    return random.normal(size=shape).astype(np.float32)

def adapter(name, tensors, **config):
    usual = dict(peft_type="LORA", r=4, lora_alpha=8, base_model_name_or_path="../bert")
    write(here / name / "adapter_config.json", {**usual, **config})
    save_file({f"base_model.model.{k}": v for k, v in tensors.items()},
        here / name / "adapter_model.safetensors")

def factors(layer, rows, columns, rank=4):
    return {f"{layer}.lora_A.weight": normal(rank, columns),
        f"{layer}.lora_B.weight": normal(rows, rank)}

errors = {}
def compare(name, base, tensors, scale, head=None):
    '''Adds the product of the factors to what each layer gives: no weight is changed.'''
    for key in [key for key in tensors if key.endswith("lora_A.weight")]:
        layer = base.get_submodule(key.removesuffix(".lora_A.weight"))
        a, b = (torch.tensor(tensors[key.replace("lora_A", f)]) for f in ("lora_A", "lora_B"))
        def hook(_, inputs, output, a=a, b=b):
            return output + scale * (inputs[0] @ a.T @ b.T)
        layer.register_forward_hook(hook)
    model, inputs = prepared(name)
    ids, mask = (torch.tensor(value) for value in inputs)
    due = base(input_ids=ids, attention_mask=mask)[0].detach().numpy()
    own = reference.in_own_type(model, inputs)[0]
    assert own.shape == due.shape
    errors[name] = float(np.abs(own - due).max() / np.abs(due).max())

bert = t.BertModel(t.BertConfig(**text)).eval()
bert.save_pretrained(here / "bert")
query = "encoder.layer.1.attention.self.query"
tensors = {**factors(query, 32, 32), **factors("encoder.layer.0.output.dense", 32, 64)}
adapter("plain", tensors, use_rslora=True)
compare("plain", bert, tensors, 8 / 4**0.5)

# A head with three classes, which the base lacks.
whole = t.BertForSequenceClassification(t.BertConfig(**text, num_labels=3)).eval()
whole.bert.load_state_dict(t.BertModel.from_pretrained(here / "bert").state_dict())
head = {f"classifier.{k}": v.detach().numpy() for k, v in whole.classifier.named_parameters()}
tensors = factors(f"bert.{query}", 32, 32, rank=2)
adapter("classes", {**tensors, **head}, task_type="SEQ_CLS", modules_to_save=["classifier"],
    rank_pattern={"query": 2})
compare("classes", whole, tensors, 8 / 2)

gpt2 = t.GPT2LMHeadModel(t.GPT2Config(
    vocab_size=128, n_embd=32, n_layer=1, n_head=4, n_positions=64)).eval()
gpt2.save_pretrained(here / "gpt2")  # whose layers hold [inputs, outputs]
tensors = factors("transformer.h.0.attn.c_attn", 96, 32)
adapter("transposed", tensors, task_type="CAUSAL_LM", fan_in_fan_out=True,
    base_model_name_or_path=str(here / "gpt2"))
compare("transposed", gpt2, tensors, 8 / 4)

# PEFT trains a copy of the head; the table that the base ties to it stays.
untied = t.GPT2LMHeadModel.from_pretrained(here / "gpt2").eval()
head = {"lm_head.weight": normal(128, 32)}
adapter("untied", {**tensors, **head}, task_type="CAUSAL_LM", fan_in_fan_out=True,
    modules_to_save=["lm_head"], base_model_name_or_path=str(here / "gpt2"))
untied.lm_head.weight = torch.nn.Parameter(torch.tensor(head["lm_head.weight"]))
compare("untied", untied, tensors, 8 / 4)

# PEFT also saves the weights of the base for embeddings that an adapter changes.
with_base = t.GPT2LMHeadModel.from_pretrained(here / "gpt2").eval()
tensors = factors("lm_head", 128, 32)
base = {"lm_head.base_layer.weight": with_base.lm_head.weight.detach().numpy()}
adapter("with_base", {**tensors, **base}, task_type="CAUSAL_LM",
    base_model_name_or_path=str(here / "gpt2"))
compare("with_base", with_base, tensors, 8 / 4)

adapter("other_layer", factors("encoder.layer.7.attention.self.query", 32, 32))
adapter("other_size", factors(query, 48, 32))
wanted = user_models.ModelOptions(framework="pt")
(planned,) = user_models.find_cases(str(here / "plain"), wanted).cases
t.BertModel(t.BertConfig(**text)).save_pretrained(here / "bert")
try:
    changed = in_transformers.create_model(**planned.model.model_parameters)
except user_models.UserModelError as error:
    changed = str(error)
answer(errors=errors, layer=refused("other_layer"), size=refused("other_size"), changed=changed)
"""
)


@pytest.fixture
def answer(tmp_path, environment):
    """Runs a script of PyTorch's; returns what it found."""

    def run(script):
        need("torch")
        run_script(script, [str(tmp_path)], environment, framework="torch")
        return json.loads((tmp_path / "answer.json").read_text())

    return run


def test_directories_get_the_inputs_that_their_configurations_describe(answer):
    got = answer(KINDS)
    ids = {"input_ids": [2, 32], "attention_mask": [2, 32]}
    pixels = {"pixel_values": [2, 3, 32, 32]}
    assert {name: found["inputs"] for name, found in got["found"].items()} == {
        "clip": {"input_ids": [2, 16], "attention_mask": [2, 16], **pixels},
        "wav2vec2": {"input_values": [2, 16000]},
        "bart": {**ids, "decoder_input_ids": [2, 32]},
        "whisper": {"input_features": [2, 16, 100], "decoder_input_ids": [2, 16]},
        "captions": {**pixels, "decoder_input_ids": [2, 64]},
        "layoutlm": {**ids, "bbox": [2, 32, 4]},
        "tapas": {**ids, "token_type_ids": [2, 32, 7]},
        "spectrogram": {"input_values": [2, 64, 32]},
        "series": {
            "past_values": [2, 15],
            "past_time_features": [2, 15, 2],
            "past_observed_mask": [2, 15],
            "future_values": [2, 6],
            "future_time_features": [2, 6, 2],
        },
        # 64 tokens, and a place for each of the 4x4 patches.
        "llava": {"input_ids": [2, 80], "attention_mask": [2, 80], **pixels},
        "norms": ids,
        "experts": ids,
        "answers": ids,
    }
    assert max(found["error"] for found in got["found"].values()) < 1e-5
    # The library casts norms to float32, which would cut the truth to seven digits.
    assert got["found"]["norms"]["remark"] is None
    # All heads are outputs: one that is left out would be dead code.
    assert got["found"]["answers"]["outputs"] == [[2, 32], [2, 32]]
    assert got["found"]["clip"]["outputs"] == [[2, 2], [2, 2], [2, 16], [2, 16]]
    assert (got["last_token"], got["has_area"], got["places"]) == (3, True, 16)
    assert got["named"] == [["inputs"], [3, 32]]
    assert got["tables"] == (
        "the configuration of PerceiverForMaskedLM does not determine inputs; describe each with "
        "--input NAME=TYPE[SIZES], e.g. --input 'inputs=f32[batch,16]'"
    )
    assert "takes no such argument; it takes input_ids, bbox" in got["unknown"]
    assert "also takes token_type_ids" in got["too_large"]


def test_a_sentence_pipeline_pools_by_its_mask_in_every_mode(answer):
    got = answer(SENTENCES)
    assert len(got["errors"]) == 8
    assert max(got["errors"].values()) < 1e-5, got["errors"]
    assert "activation_function 'os.system' is not one of PyTorch's" in got["strange"]
    assert "Dense in " in got["shape"]
    assert "size mismatch" in got["shape"]


def test_an_adapter_adds_its_product_to_the_base(answer):
    got = answer(ADAPTERS)
    assert set(got["errors"]) == {"plain", "classes", "transposed", "untied", "with_base"}
    assert max(got["errors"].values()) < 1e-5, got["errors"]
    assert got["changed"].endswith("plain has changed since this run was planned")
    assert got["layer"].startswith("other_layer does not match its base bert: BertModel has no ")
    assert got["size"] == (
        "other_size does not match its base bert: encoder.layer.1.attention.self.query has size "
        "48x32, but the base has 32x32"
    )


def test_a_pipeline_is_measured_under_its_own_name(answer, tmp_path, environment):
    need("onnxruntime")
    answer(SENTENCES)
    run = run_cbs(
        *("all", "--batch", "2", "--backend", "pt_inductor:eager,onnxruntime", "-w", "1"),
        *("-iter", "2"),
        directory=tmp_path,
        environment=environment,
    )
    assert run.code == 0, run.out + run.err
    name = "ALL_SENTENCE_EMBEDDING_FP32_PT_BATCH2"
    assert run.statuses == {f"{name} pt_inductor:eager": "ok", f"{name} onnxruntime:default": "ok"}
    assert "all runs only in PyTorch: it is a sentence-transformers pipeline (" in run.out + run.err
