"""`--text`: the model runs on the tokens of the directory's own tokenizer."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.models.architectures.directories import config_of
from openxla.benchmark.models.checkpoints import write_weights
from openxla.benchmark.models.preprocessing import token_batch
from openxla.benchmark.user_models import ModelOptions, UserModelError, definitions, find_cases
from openxla.benchmark.workloads import workload_of

WORDS = "A compiler that mixes up rows would otherwise go unnoticed, says the harness."


@pytest.fixture
def bert(tmp_path):
    target = tmp_path / "my-bert"
    shutil.copytree(checkpoints.seeded(architectures.get("bert"), "bert-tiny"), target)
    (tmp_path / "text.txt").write_text(WORDS, encoding="utf-8")
    return target


def on_text(bert, name="text.txt", **wanted):
    return ModelOptions(
        folder=bert.parent, text=Path(name), batch_sizes=(2,), seq_lens=(16,), **wanted
    )


def change(bert, **keys):
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps({**config, **keys}))


def test_a_text_is_the_input_in_all_frameworks_and_comes_back_from_definitions(bert):
    wanted = on_text(bert)
    cases = find_cases("my-bert", wanted).cases
    assert len(cases) == 3
    (digest,) = {workload_of(case).digest for case in cases}
    ids = np.load(Path(cases[0].input_data.source_url) / "input_0.npy")
    tokens, _ = token_batch(WORDS, bert / "tokenizer.json", batch_size=2, seq_len=16)
    assert ids.shape == tokens.shape
    assert ids[0, 0] == tokens[0, 0]
    assert (ids == tokens).mean() > 0.4  # the others are padding
    (bert.parent / "text.txt").write_text(f"Not {WORDS}")
    assert workload_of(find_cases("my-bert", wanted).cases[0]).digest != digest
    (bert.parent / "text.txt").write_text(WORDS)
    definitions("my-bert", wanted, cases, bert.parent / "suite").write()
    (bert.parent / "text.txt").unlink()
    again = catalog.all_benchmarks([str(bert.parent / "suite")])
    assert [case.name for case in again] == [case.name for case in cases]
    assert {workload_of(case).digest for case in again} == {digest}


def test_what_runs_through_transformers_takes_the_tokens_and_their_mask(bert):
    change(bert, architectures=["BertForMaskedLM"])
    (case,) = find_cases("my-bert", on_text(bert)).cases
    folder = Path(case.input_data.source_url)
    due = token_batch(WORDS, bert / "tokenizer.json", batch_size=2, seq_len=16)
    for place, array in enumerate(due):
        assert np.array_equal(np.load(folder / f"input_{place}.npy"), array)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", None, "has no tokenizer.json; save the model's tokenizer there"),
        ("tokenizer.json", b"{}", "tokenizer.json: "),
        ("../text.txt", None, "text.txt cannot be read as UTF-8 text"),
        ("../text.txt", b"\xff\xfe\xff", "text.txt cannot be read as UTF-8 text"),
        ("../text.txt", b" \n", "the text has no words"),
    ],
)
def test_what_is_missing_or_broken_is_reported_in_a_line(bert, name, content, words):
    (bert / name).unlink()
    if content is not None:
        (bert / name).write_bytes(content)
    with pytest.raises(UserModelError) as raised:
        find_cases("my-bert", on_text(bert))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_tokenizer_of_another_model_is_reported(bert):
    change(bert, vocab_size=3)
    init = TensorInit(name="embeddings.word_embeddings.weight", shape=(3, 128))
    tensors = {t.name: t for t in architectures.get("bert").tensors(config_of(str(bert), "bert"))}
    write_weights(bert / "model.safetensors", (tensors | {init.name: init}).values(), seed=0)
    with pytest.raises(
        UserModelError, match="the model's tokens are below 3; save the model's own tokenizer"
    ):
        find_cases("my-bert", on_text(bert))


def test_tokens_are_checked_again_for_another_configuration(bert):
    change(bert, architectures=["BertForMaskedLM"])
    find_cases("my-bert", on_text(bert))
    change(bert, vocab_size=3)
    with pytest.raises(UserModelError, match="the model's tokens are below 3"):
        find_cases("my-bert", on_text(bert))


def test_who_takes_no_text_reports_it(bert, tmp_path):
    change(bert, architectures=["BertForMaskedLM"], is_encoder_decoder=True)
    with pytest.raises(UserModelError, match="which need separate texts"):
        find_cases("my-bert", on_text(bert))
    with pytest.raises(UserModelError, match="--text and --inputs cannot be combined"):
        find_cases("my-bert", on_text(bert, inputs_dir=tmp_path))
    (tmp_path / "net.py").write_text("import torch\n")
    with pytest.raises(UserModelError, match=r"but net.py is not one"):
        find_cases("net.py", on_text(bert))
    vit = architectures.get("vit")
    (bert / "config.json").write_text(json.dumps(vit.configs["vit-tiny"]))
    write_weights(bert / "model.safetensors", vit.tensors(vit.configs["vit-tiny"]), seed=0)
    with pytest.raises(UserModelError, match="my-bert does not accept text"):
        find_cases("my-bert", ModelOptions(folder=tmp_path, text=Path("text.txt")))
