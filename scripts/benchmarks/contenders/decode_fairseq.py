"""fairseq 0.12 in the decoding benchmark: pieces to pieces, by its own batches and SequenceGenerator.

T positions  D model width  V vocabulary
"""

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.contenders import run_fairseq, timed_decoding
from benchmarks.contenders.train_plain import BOS, EOS, PAD, marian_weights

run_fairseq.admit_its_dataclasses()
from fairseq.data import Dictionary  # noqa: E402
from fairseq.models.transformer import TransformerModel  # noqa: E402
from fairseq.sequence_generator import SequenceGenerator  # noqa: E402
from fairseq.tasks.translation import TranslationConfig, TranslationTask  # noqa: E402

UNK = 1
FIRST_ROWS = [BOS, PAD, EOS, UNK]  # the order of its own special pieces


def load(job: timed_decoding.Job) -> timed_decoding.Translate:
    torch.set_num_threads(job["threads"])
    tell_what_is_masked()
    dictionary = Dictionary()
    for piece in Path(job["pieces"]).read_text(encoding="utf-8").split("\n")[:-1]:
        dictionary.add_symbol(piece)
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    model = TransformerModel.build_model(Namespace(**architecture(job["shape"])), task)
    model.load_state_dict(weights(torch.load(Path(job["model"]), weights_only=True), dictionary.pad()))
    model.eval().prepare_for_inference_(Namespace(generation=None))

    def translate(lines: list[str], beam: int, size: int) -> list[str]:
        generator = SequenceGenerator(
            [model],
            dictionary,
            beam_size=beam,
            max_len_a=1,
            max_len_b=job["max_extra_length"],
            len_penalty=job["length_exponent"],
        )
        sentences = [dictionary.encode_line(line, add_if_not_exist=False).long() for line in lines]
        data = task.build_dataset_for_inference(sentences, [len(sentence) for sentence in sentences])
        batches = task.get_batch_iterator(data, max_sentences=size, disable_iterator_cache=True)
        found = [""] * len(lines)
        for batch in batches.next_epoch_itr(shuffle=False):
            hypotheses = generator.generate([model], batch, bos_token=dictionary.bos())
            for number, best in zip(batch["id"].tolist(), hypotheses, strict=True):
                found[number] = dictionary.string(best[0]["tokens"])
        return found

    return translate


def tell_what_is_masked() -> None:
    """Its fused encoder layer does not, and newer versions of PyTorch ask for it: 1, the padding of the source."""
    fused = torch._transformer_encoder_layer_fwd
    torch._transformer_encoder_layer_fwd = lambda *arguments: fused(*arguments, 1)  # type: ignore[assignment]


def architecture(shape: dict[str, Any]) -> dict[str, Any]:
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {
            "layers": shape[f"{side}_layers"],
            "embed_dim": shape["d_model"],
            "ffn_embed_dim": shape["ffn_dim"],
            "attention_heads": shape["num_heads"],
            "learned_pos": True,  # its sinusoids have other frequencies: the table of ours stands in their place
        }.items()
    }
    positions = {f"max_{side}_positions": shape["max_positions"] for side in ("source", "target")}
    return sides | positions | {"share_all_embeddings": True}


def weights(ours: dict[str, Tensor], padding: int) -> dict[str, Tensor]:
    """Those of NnTransformer by the names of fairseq, most of which Marian has from it."""
    renamed = {name.removeprefix("marian.model."): value for name, value in marian_weights(ours).items()}
    embedding_VD, table_TD = ours["embedding.weight"], ours["positions_TD"]
    embedding_VD = torch.cat([embedding_VD[FIRST_ROWS], embedding_VD[len(FIRST_ROWS) :]])
    positions_TD = torch.cat([table_TD.new_zeros(padding + 1, table_TD.shape[1]), table_TD])  # it counts from there
    for side in ("encoder", "decoder"):
        renamed[f"{side}.embed_tokens.weight"] = embedding_VD
        renamed[f"{side}.embed_positions.weight"] = positions_TD
        renamed[f"{side}.version"] = torch.tensor([3.0])
    renamed["decoder.output_projection.weight"] = embedding_VD
    others = ("shared.weight", "marian.lm_head.weight", "marian.final_logits_bias")
    return {name: value for name, value in renamed.items() if name not in others}


if __name__ == "__main__":
    timed_decoding.main(load)
