#!/usr/bin/env python3
"""Trains the bundled WordPiece tokenizer on the bundled text; the result is checked in."""

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from openxla.benchmark import testdata

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY_SIZE = 1000


def main() -> None:
    """Writes `testdata/data/tokenizer.json`."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY_SIZE, special_tokens=SPECIAL_TOKENS, show_progress=False
    )
    tokenizer.train_from_iterator([testdata.load_text()], trainer)
    ids = tokenizer.get_vocab()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
    )
    tokenizer.save(str(testdata.TOKENIZER))
    print(f"{testdata.TOKENIZER}: {tokenizer.get_vocab_size()} pieces")


if __name__ == "__main__":
    main()
