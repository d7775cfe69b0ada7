"""Each Hugging Face directory of the cases runs in PyTorch and ONNX Runtime, or is refused."""

import json

import pytest
from agreement_support import need
from framework_process import run_script
from tests_support import run_cbs

pytestmark = [pytest.mark.frameworks, pytest.mark.nightly]

# Writes one directory by its name, with random weights of seed 0.
WRITE = """
import json, pathlib, shutil, sys
import torch, transformers as t
from safetensors.torch import save_file
t.utils.logging.set_verbosity_error()
t.utils.logging.disable_progress_bar()
torch.manual_seed(0)
here, name = pathlib.Path(sys.argv[1]), sys.argv[2]

decoder = dict(
    vocab_size=128, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=128)
encoder = dict(
    vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=64, max_position_embeddings=64)
layers = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
stretched = dict(
    rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
    high_freq_factor=4.0, original_max_position_embeddings=32)
def llama(heads=2, **more):
    return t.LlamaForCausalLM(t.LlamaConfig(**decoder, num_key_value_heads=heads, **more))
def bert():
    return t.BertModel(t.BertConfig(**encoder))

models = dict(
    llama_headdim=lambda: llama(head_dim=24),
    llama_rope3=lambda: llama(rope_parameters=stretched),
    llama_tied_sharded=lambda: llama(1, tie_word_embeddings=True),
    llama_bias=lambda: llama(attention_bias=True, mlp_bias=True),
    mistral_window=lambda: t.MistralForCausalLM(t.MistralConfig(
        **decoder, num_key_value_heads=2, sliding_window=8)),
    qwen3_qknorm=lambda: t.Qwen3ForCausalLM(t.Qwen3Config(
        **decoder, num_key_value_heads=2, head_dim=16)),
    mixtral=lambda: t.MixtralForCausalLM(t.MixtralConfig(
        **decoder, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)),
    distilbert=lambda: t.DistilBertForSequenceClassification(t.DistilBertConfig(
        vocab_size=128, dim=32, n_layers=2, n_heads=4, hidden_dim=64,
        max_position_embeddings=64, num_labels=1)),
    roberta_regress=lambda: t.RobertaForSequenceClassification(t.RobertaConfig(
        **{**encoder, "max_position_embeddings": 66}, num_labels=1, pad_token_id=1)),
    deberta=lambda: t.DebertaV2Model(t.DebertaV2Config(
        **encoder, relative_attention=True, pos_att_type=["p2c", "c2p"])),
    modernbert=lambda: t.ModernBertForMaskedLM(t.ModernBertConfig(
        vocab_size=128, num_hidden_layers=3, hidden_size=32, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, cls_token_id=1, sep_token_id=2)),
    bert_plain=bert, sbert=bert, remote_code=bert,
    bert_prefix=lambda: t.BertForMaskedLM(t.BertConfig(**encoder)),
    clip_full=lambda: t.CLIPModel(t.CLIPConfig(
        text_config=dict(
            vocab_size=128, max_position_embeddings=16, eos_token_id=2, **layers),
        vision_config=dict(image_size=32, patch_size=8, **layers), projection_dim=16)),
    wav2vec2=lambda: t.Wav2Vec2ForCTC(t.Wav2Vec2Config(
        vocab_size=32, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2),
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, **layers)),
    bart=lambda: t.BartForConditionalGeneration(t.BartConfig(
        vocab_size=128, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_position_embeddings=64)),
    mamba=lambda: t.MambaForCausalLM(t.MambaConfig(
        vocab_size=128, hidden_size=32, num_hidden_layers=2, state_size=8, time_step_rank=4)),
    swin=lambda: t.SwinForImageClassification(t.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4],
        window_size=4, num_labels=5)),
    dinov2=lambda: t.Dinov2Model(t.Dinov2Config(image_size=28, patch_size=7, **layers)),
)

def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))

folder = here / name
config = folder / "config.json"
if name == "peft_adapter":
    write(folder / "adapter_config.json", dict(
        peft_type="LORA", base_model_name_or_path="bert-base-uncased", r=4,
        target_modules=["query"]))
    weights = {"base_model.model.x.lora_A.weight": torch.randn(4, 32)}
    save_file(weights, folder / "adapter_model.safetensors")
else:
    size = dict(max_shard_size="40KB") if name.endswith("sharded") else {}
    models[name]().eval().save_pretrained(folder, **size)
    assert name != "llama_tied_sharded" or len(list(folder.glob("*.safetensors"))) > 1
if name == "sbert":
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    write(folder / "modules.json", [
        dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}")
        for i, (kind, path) in enumerate(kinds)])
    write(folder / "1_Pooling" / "config.json", dict(
        word_embedding_dimension=32, pooling_mode_mean_tokens=True))
if name == "bert_prefix":  # its weights have a prefix that its class lacks
    write(config, {**json.loads(config.read_text()), "architectures": ["BertModel"]})
if name == "remote_code":
    write(config, {
        **json.loads(config.read_text()), "model_type": "mine", "architectures": ["MyModel"],
        "auto_map": {
            "AutoModel": "modeling_mine.MyModel", "AutoConfig": "configuration_mine.MyConfig"}})
    write(folder / "modeling_mine.py", "raise SystemExit('must not run')\\n")
"""
DIRECTORIES = (
    *("llama_headdim", "llama_rope3", "llama_tied_sharded", "llama_bias", "mistral_window"),
    *("qwen3_qknorm", "mixtral", "distilbert", "roberta_regress", "deberta", "modernbert"),
    *("bert_plain", "bert_prefix", "sbert", "clip_full", "wav2vec2", "bart", "mamba", "swin"),
    "dinov2",
)
# Part of what a run prints about a directory.
PRINTED = {"sbert": "it is a sentence-transformers pipeline"}
MAY_AGREE = ("mixtral", "roberta_regress")


@pytest.fixture
def run(tmp_path, environment):
    """Returns a function that writes a directory and races it in PyTorch and ONNX Runtime."""

    def run_directory(name):
        need("torch")
        need("onnxruntime")
        run_script(WRITE, [str(tmp_path), name], environment, framework="torch")
        return run_cbs(
            *(name, "-w", "1", "-iter", "3", "--backend", "pt_inductor:eager,onnxruntime"),
            directory=tmp_path,
            environment=environment,
        )

    return run_directory


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_is_ok_in_both(run, name):
    made = run(name)
    assert made.code == 0, made.out + made.err
    found = set(made.statuses.values())
    assert len(made.statuses) == 2
    assert found <= ({"ok", "agreed"} if name in MAY_AGREE else {"ok"}), made.statuses
    assert PRINTED.get(name, "") in made.out + made.err


def test_peft_adapter_without_its_base_names_it(run):
    made = run("peft_adapter")
    assert made.code == 1
    assert "bert-base-uncased" in made.err
    assert not made.output.exists()


def test_remote_code_is_not_run(run):
    made = run("remote_code")
    assert set(made.statuses.values()) == {"failed"}
    reasons = {record["reason"] for record in made.document["benchmarks"]}
    assert len(reasons) == 1
    assert "code in a directory is never run" in reasons.pop()
    assert json.dumps(made.document).find("must not run") == -1
