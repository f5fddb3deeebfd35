"""JoeyNMT 2.3 in the decoding benchmark: pieces to pieces, by its search, in sorted batches.

B sentences  S source positions  V vocabulary
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.batch import Batch
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary
from torch import Tensor, nn

from benchmarks.contenders import timed_decoding
from benchmarks.contenders.train_plain import BOS, EOS, PAD

UNK = 1
FIRST_ROWS = [UNK, PAD, BOS, EOS]  # the order of its own special pieces
PARTS = {
    "encoder": {
        "self_attn": "src_src_att",
        "norm1": "layer_norm",
        "norm2": "feed_forward.layer_norm",
    },
    "decoder": {
        "self_attn": "trg_trg_att",
        "multihead_attn": "src_trg_att",
        "norm1": "x_layer_norm",
        "norm2": "dec_layer_norm",
        "norm3": "feed_forward.layer_norm",
    },
}
FEED_FORWARD = {"linear1": "feed_forward.pwff_layer.0", "linear2": "feed_forward.pwff_layer.3"}


def load(job: timed_decoding.Job) -> timed_decoding.Translate:
    torch.set_num_threads(job["threads"])
    model = built(job)
    vocabulary = model.trg_vocab

    def translate(lines: list[str], beam: int, size: int) -> list[str]:
        sentences = [[vocabulary.lookup(piece) for piece in line.split()] for line in lines]
        found = [""] * len(lines)
        for numbers in timed_decoding.batches_by_length(sentences, size):
            batch = padded([[*sentences[number], vocabulary.eos_index] for number in numbers], vocabulary)
            limit = int(batch.src_length.max()) + job["max_extra_length"]
            ids_BT, _, _ = search(model, batch, limit, beam, job["length_penalty"])
            outputs = vocabulary.arrays_to_sentences(ids_BT, cut_at_eos=True)
            for number, pieces in zip(numbers, outputs, strict=True):
                found[number] = " ".join(piece for piece in pieces if piece not in vocabulary.specials)
        return found

    return translate


def built(job: timed_decoding.Job) -> Model:
    pieces = Path(job["pieces"]).read_text(encoding="utf-8").split("\n")[:-1]
    names = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    special = {f"{name}_token": piece for name, piece in names.items()}
    special |= {f"{name}_id": number for number, name in enumerate(names)}
    vocabulary = Vocabulary(pieces, SimpleNamespace(**special, sep_token=None, lang_tags=[]))
    model = build_model(architecture(job["shape"]), vocabulary, vocabulary)
    missing, unexpected = model.load_state_dict(
        weights(torch.load(Path(job["model"]), weights_only=True)), strict=False
    )
    assert not unexpected and all(name.endswith(".pe") for name in missing), "its positions are those of ours already"
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-5  # its own is 1e-6
    return model.eval()


def architecture(shape: dict[str, Any]) -> dict[str, Any]:
    half = {
        "type": "transformer",
        "num_heads": shape["num_heads"],
        "embeddings": {"embedding_dim": shape["d_model"], "scale": True},
        "hidden_size": shape["d_model"],
        "ff_size": shape["ffn_dim"],
        "layer_norm": "post",
    }
    sides = {side: half | {"num_layers": shape[f"{side}_layers"]} for side in ("encoder", "decoder")}
    return sides | {"tied_embeddings": True, "tied_softmax": True}


def weights(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those of NnTransformer by the names of JoeyNMT."""
    embedding_VD = ours["embedding.weight"]
    embedding_VD = torch.cat([embedding_VD[FIRST_ROWS], embedding_VD[len(FIRST_ROWS) :]])
    embeddings = "src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"
    renamed = dict.fromkeys(embeddings, embedding_VD)
    for name, value in ours.items():
        if name.startswith("transformer."):
            _, side, _, layer, part, *leaves = name.split(".")
            leaf, prefix = ".".join(leaves), f"{side}.layers.{layer}.{(PARTS[side] | FEED_FORWARD)[part]}"
            if leaf.startswith("in_proj_"):
                kind = leaf.removeprefix("in_proj_")
                renamed |= {f"{prefix}.{x}_layer.{kind}": rows for x, rows in zip("qkv", value.chunk(3), strict=True)}
            else:
                renamed[f"{prefix}.{leaf.replace('out_proj', 'output_layer')}"] = value
    return renamed


def padded(sentences: list[list[int]], vocabulary: Vocabulary) -> Batch:
    longest = max(map(len, sentences))
    source_BS = torch.tensor([ids + [vocabulary.pad_index] * (longest - len(ids)) for ids in sentences])
    return Batch(
        src=source_BS,
        src_length=torch.tensor([len(ids) for ids in sentences]),
        src_prompt_mask=None,
        trg=None,
        trg_prompt_mask=None,
        indices=torch.arange(len(sentences)),
        device=torch.device("cpu"),
        pad_index=vocabulary.pad_index,
        eos_index=vocabulary.eos_index,
        is_train=False,
    )


if __name__ == "__main__":
    timed_decoding.main(load)
