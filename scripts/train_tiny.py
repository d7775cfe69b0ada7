#!/usr/bin/env python3
"""Trains the tiny BERT, GPT-2 and ResNet that ship with the suite, each on a small real task.

Writes `common_benchmark_suite/openxla/benchmark/models/trained/<model>/`: weights rounded to
bfloat16 (so that every data type starts from the same numbers), held-out examples, and the results
of the float64 model for them. Takes about ten minutes on two cores. The data come from packages:

  resnet-tiny  scikit-learn's handwritten digits (8 x 8 pixels); top-1 of 10 classes
  gpt2-tiny    the topics of Python's own documentation; perplexity of the next token
  bert-tiny    Django's translations; top-1 of ten languages of a sentence

    pip download --no-deps --dest DIR django==5.2.19
    PYTHONPATH=.recipes.venv .venv/bin/python scripts/train_tiny.py --django DIR/*.whl [MODEL ...]
"""

import argparse
import json
import lzma
import math
import platform
import pydoc_data.topics
import re
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from openxla.benchmark import testdata
from openxla.benchmark.models import checkpoint_tensors, trained
from openxla.benchmark.models.pt import bert, gpt2, resnet

SEED = 0
LANGUAGES = ("cs", "de", "es", "fi", "fr", "it", "nl", "pl", "pt", "sv")
SEQ_LEN = 32
# Training examples that ship with the suite, to calibrate quantisation.
LEARNED = 64
MODELS = {"resnet-tiny": resnet, "gpt2-tiny": gpt2, "bert-tiny": bert}


def main() -> None:
    """Trains the selected models."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--django", type=Path, help="Django wheel, required for bert-tiny")
    parser.add_argument("models", nargs="*", default=list(MODELS))
    options = parser.parse_args()
    for name in options.models:
        torch.manual_seed(SEED)
        rng = np.random.default_rng(SEED)
        start = time.monotonic()
        model = MODELS[name].create_model(model_name=name, data_type="fp32", seq_len=SEQ_LEN)
        module = model.model.requires_grad_(True)
        if name == "resnet-tiny":
            examples, facts = digits(module, rng)
        elif name == "gpt2-tiny":
            examples, facts = prose(module, rng)
        else:
            examples, facts = languages(module, rng, options.django)
        write(name, module, examples, facts)
        print(f"{name}: {facts['reference']} in {time.monotonic() - start:.0f} s", flush=True)


def digits(module: Any, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains the module; returns held-out digits with its float64 results."""
    import sklearn
    from sklearn.datasets import load_digits

    data = load_digits()
    order = rng.permutation(len(data.target))
    images = data.images[order].astype(np.uint8)
    labels = data.target[order].astype(np.int64)
    held_out = 400
    pixels = torch.from_numpy(trained.pixels_of(images))
    targets = torch.from_numpy(labels)

    def batches() -> Any:
        chosen = torch.from_numpy(rng.integers(held_out, len(labels), 64))
        # Shifts by up to 2 of 32 pixels augment the small data set.
        moved = torch.roll(pixels[chosen], tuple(map(int, rng.integers(-2, 3, 2))), (2, 3))
        return torch.nn.functional.cross_entropy(module(moved).logits, targets[chosen])

    train(module, batches, steps=1500, rate=3e-3)
    with torch.no_grad():
        logits = module.double()(pixels[:held_out].double()).logits
    return (
        {
            "images": images[:held_out],
            "labels": labels[:held_out].astype(np.uint8),
            "predicted": logits.argmax(1).numpy().astype(np.uint16),
            "learned_images": images[held_out : held_out + LEARNED],
        },
        {
            "metric": "top-1",
            "task": "handwritten digits",
            "source": f"scikit-learn {sklearn.__version__}, load_digits "
            "(UCI, Optical Recognition of Handwritten Digits, CC BY 4.0)",
            "reference": float((logits.argmax(1) == targets[:held_out]).double().mean()),
            "most_lost": 0.01,
        },
    )


def prose(module: Any, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains the module; returns held-out windows of Python's documentation with float64 losses."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(testdata.TOKENIZER))
    topics = pydoc_data.topics.topics
    names = sorted(topics)
    rng.shuffle(names)
    ids = {name: tokenizer.encode(topics[name], add_special_tokens=False).ids for name in names}
    held_out = 128
    kept: list[list[int]] = []
    while len(kept) < held_out:
        text = ids.pop(names.pop())
        kept += [text[i : i + SEQ_LEN] for i in range(0, len(text) - SEQ_LEN, 2 * SEQ_LEN)]
    windows = torch.tensor(kept)[torch.from_numpy(rng.permutation(len(kept))[:held_out])]
    stream = torch.tensor([token for text in ids.values() for token in text])

    def batches() -> Any:
        starts = torch.from_numpy(rng.integers(0, len(stream) - SEQ_LEN, 32))
        chosen = stream[starts[:, None] + torch.arange(SEQ_LEN)]
        return loss_of(module(chosen).logits, chosen)

    train(module, batches, steps=4000, rate=2e-3)
    with torch.no_grad():
        logits = module.double()(windows).logits
    losses = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), windows[:, 1:].flatten(), reduction="none"
    )
    return (
        {
            "tokens": windows.numpy().astype(np.uint16),
            "losses": losses.reshape(held_out, -1).mean(1).numpy(),
            "learned_tokens": stream[: LEARNED * SEQ_LEN]
            .reshape(LEARNED, -1)
            .numpy()
            .astype(np.uint16),
        },
        {
            "metric": "perplexity",
            "task": "next token of Python's documentation",
            "source": f"Python {platform.python_version()}, pydoc_data.topics (PSF-2.0)",
            "reference": float(math.exp(losses.mean())),
            "most_lost": 0.02,
        },
    )


def loss_of(logits: Any, tokens: Any) -> Any:
    """Returns the mean loss of each next token."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def languages(
    module: Any, rng: np.random.Generator, wheel: Path | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains module and head; returns held-out sentences with their float64 results."""
    if wheel is None:
        sys.exit("bert-tiny needs --django WHEEL")
    by_message = sentences(wheel)
    messages = sorted(by_message)
    rng.shuffle(messages)
    # The training set contains no translations of held-out sentences.
    held_out = encoded([pair for m in messages[:60] for pair in by_message[m]], rng)
    known = encoded([pair for m in messages[60:] for pair in by_message[m]], rng)
    count = 400
    tokens, mask, labels = (value[:count] for value in held_out)
    head = torch.nn.Linear(128, len(LANGUAGES))
    both = torch.nn.ModuleList([module, head])

    def scores(tokens: Any, mask: Any) -> Any:
        hidden = module(input_ids=tokens, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(hidden.dtype)
        return head((hidden * weights).sum(1) / weights.sum(1))

    def batches() -> Any:
        chosen = torch.from_numpy(rng.integers(0, len(known[0]), 64))
        return torch.nn.functional.cross_entropy(
            scores(known[0][chosen], known[1][chosen]), known[2][chosen]
        )

    train(both, batches, steps=2500, rate=1e-3)
    both.double()
    with torch.no_grad():
        predicted = scores(tokens, mask).argmax(1)
    return (
        {
            "tokens": tokens.numpy().astype(np.uint16),
            "lengths": mask.sum(1).numpy().astype(np.uint8),
            "labels": labels.numpy().astype(np.uint8),
            "predicted": predicted.numpy().astype(np.uint16),
            "head": head.weight.detach().numpy(),
            "bias": head.bias.detach().numpy(),
            "learned_tokens": known[0][:LEARNED].numpy().astype(np.uint16),
            "learned_lengths": known[1][:LEARNED].sum(1).numpy().astype(np.uint8),
        },
        {
            "metric": "top-1",
            "task": f"language of a sentence, of {len(LANGUAGES)}",
            "source": f"translations of {wheel.name.rpartition('-py3')[0]} (BSD-3-Clause)",
            "reference": float((predicted == labels).double().mean()),
            "most_lost": 0.01,
        },
    )


def sentences(wheel: Path) -> dict[str, list[tuple[str, int]]]:
    """Returns translations with the index of their language, by English message."""
    found: dict[str, list[tuple[str, int]]] = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            place = re.search(r"/locale/(\w+)/LC_MESSAGES/django\.po$", name)
            if place is None or place[1] not in LANGUAGES:
                continue
            text = archive.read(name).decode()
            for source, target in re.findall(
                r'^msgid ((?:".*"\n)+)msgstr ((?:".*"\n)+)', text, re.MULTILINE
            ):
                message, sentence = (
                    re.sub(r'"\n"|"\n?$|^"', "", value).replace('\\"', '"').replace("\\n", " ")
                    for value in (source, target)
                )
                if len(sentence) >= 20 and sentence != message:
                    found.setdefault(message, []).append((sentence, LANGUAGES.index(place[1])))
    return found


def encoded(pairs: list[tuple[str, int]], rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Returns tokens and mask, int64[n, seq], and labels of sentences, shuffled."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(testdata.TOKENIZER))
    tokenizer.enable_truncation(SEQ_LEN)
    tokenizer.enable_padding(length=SEQ_LEN)
    pairs = [pairs[index] for index in rng.permutation(len(pairs))]
    rows = tokenizer.encode_batch([text for text, _ in pairs])
    return (
        torch.tensor([row.ids for row in rows]),
        torch.tensor([row.attention_mask for row in rows]),
        torch.tensor([label for _, label in pairs]),
    )


def train(module: Any, loss: Callable[[], Any], *, steps: int, rate: float) -> None:
    """Trains with AdamW, warm-up and cosine decay, and rounds the weights to bfloat16."""
    module.train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=0.01)
    for step in range(steps):
        share = min(1.0, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = rate * share
        found = loss()
        optimizer.zero_grad()
        found.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        if step % 250 == 0:
            print(f"  step {step}: loss {found.item():.3f}", flush=True)
    module.eval()
    with torch.no_grad():
        for value in _floats(module):
            value.copy_(value.bfloat16().float())


def _floats(module: Any) -> Iterator[Any]:
    states = [*module.parameters(), *module.buffers()]
    return (value for value in states if value.is_floating_point())


def write(name: str, module: Any, examples: dict[str, Any], facts: dict[str, Any]) -> None:
    """Writes weights, examples and their facts."""
    folder = trained.FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        key: value.detach() for key, value in module.state_dict().items() if key != "lm_head.weight"
    }
    signatures = {
        key: ("BF16" if value.is_floating_point() else "I64", tuple(value.shape))
        for key, value in state.items()
    }

    def tensor(key: str) -> Any:
        value = state[key]
        return (value.float() if value.is_floating_point() else value).numpy()

    weights = folder / trained.WEIGHTS
    plain = weights.with_suffix("")
    checkpoint_tensors.write_safetensors(plain, signatures, tensor)
    weights.write_bytes(lzma.compress(plain.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    plain.unlink()
    np.savez_compressed(folder / trained.EXAMPLES, **examples)
    facts |= {
        "seed": SEED,
        "trained_by": "scripts/train_tiny.py",
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }
    (folder / trained.TASK).write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
