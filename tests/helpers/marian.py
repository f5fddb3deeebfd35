"""Directories of MarianMT as Hugging Face has them, with random weights, made by transformers and sentencepiece."""

import json
import warnings
from pathlib import Path

import sentencepiece
import torch

EOS, UNK = "</s>", "<unk>"


def write_marian(
    directory: Path,
    sources: list[str],
    targets: list[str],
    *,
    separate: bool = False,
    tags: tuple[str, ...] = (),
    algorithm: str = "unigram",
    weights: str = "model.safetensors",
    left_out: int = 0,
    updates: int = 0,
    **settings: object,
) -> Path:
    """Two sentencepiece models as OPUS-MT trains them, and the vocabulary that Marian makes of them.

    `left_out` pieces of each are not in the vocabulary: no text that Marian read had them.
    """
    from transformers import MarianConfig, MarianMTModel  # here, for it takes a second

    directory.mkdir(parents=True)
    vocabularies = []
    for name, lines in (("source", sources), ("target", targets)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_prefix=str(directory / name),
            vocab_size=400,
            model_type=algorithm,
            minloglevel=2,
            num_threads=1,
        )
        (directory / f"{name}.model").rename(directory / f"{name}.spm")
        (directory / f"{name}.vocab").unlink()
        processor = sentencepiece.SentencePieceProcessor(model_file=str(directory / f"{name}.spm"))
        size = processor.get_piece_size()
        vocabularies.append([processor.id_to_piece(i) for i in range(3, size - left_out)])
    both = [sorted({*vocabularies[0], *vocabularies[1]})] * 2
    ids = [
        {piece: i for i, piece in enumerate([EOS, UNK, *tags, *pieces, "<pad>"])}
        for pieces in (vocabularies if separate else both)
    ]
    (directory / "vocab.json").write_text(json.dumps(ids[0]))
    if separate:
        (directory / "target_vocab.json").write_text(json.dumps(ids[1]))
    (directory / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "MarianTokenizer",
                "source_lang": "en",
                "target_lang": "de",
                "separate_vocabs": separate,
                "model_max_length": 128,
            }
        )
    )
    pad = len(ids[1]) - 1
    values = {
        "vocab_size": len(ids[0]),
        "decoder_vocab_size": len(ids[1]),
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "activation_function": "swish",
        "max_position_embeddings": 128,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": 0,
        "bos_token_id": 0,
        "forced_eos_token_id": 0,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": not separate,
        "tie_word_embeddings": True,
        "dropout": 0.0,
        "normalize_before": False,
        "normalize_embedding": False,
        "max_length": 100,
    }
    torch.manual_seed(1)
    model = MarianMTModel(MarianConfig(**{**values, **settings}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.final_logits_bias.add_(torch.randn_like(model.final_logits_bias))
        for table in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens):
            table.weight[pad] = 0.0
    if updates:
        _learn(model, directory, sources, targets, updates)
    model.generation_config.num_beams = 4
    model.generation_config.save_pretrained(directory)
    if weights == "model.safetensors":
        model.save_pretrained(directory)
    else:
        model.config.save_pretrained(directory)
        torch.save({name: weight.half() for name, weight in model.state_dict().items()}, directory / weights)
    return directory


def _learn(model, directory: Path, sources: list[str], targets: list[str], updates: int) -> None:
    """Learn a little, so that translations differ and end."""
    tokenizer = load_marian_tokenizer(directory)
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=8e-3)
    for update in range(updates):
        part = slice(update * 20 % len(sources), update * 20 % len(sources) + 20)
        batch = tokenizer(sources[part], text_target=targets[part], return_tensors="pt", padding=True)
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def load_marian_tokenizer(directory: Path):
    """The tokenizer of transformers."""
    from transformers import MarianTokenizer

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        return MarianTokenizer.from_pretrained(directory)
