"""Hugging Face in the decoding benchmark: text to text, by generate of MarianMTModel."""

import torch
from transformers import MarianMTModel, MarianTokenizer

from benchmarks.contenders import timed_decoding

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def load(job: timed_decoding.Job) -> timed_decoding.Translate:
    torch.set_num_threads(job["threads"])
    settings = job["settings"]
    device, dtype = torch.device(settings["device"]), DTYPES[settings["dtype"]]
    tokenizer = MarianTokenizer.from_pretrained(job["model"])
    model = MarianMTModel.from_pretrained(job["model"]).to(device, dtype).eval()

    @torch.inference_mode()
    def translate(lines: list[str], beam: int, size: int) -> list[str]:
        found = [""] * len(lines)
        for numbers in timed_decoding.batches_by_length(lines, size):
            batch = tokenizer([lines[number] for number in numbers], return_tensors="pt", padding=True).to(device)
            length = batch["input_ids"].shape[1] + job["max_extra_length"]
            ids_BT = model.generate(
                **batch, num_beams=beam, do_sample=False, max_length=length, length_penalty=job["length_exponent"]
            )
            for number, text in zip(numbers, tokenizer.batch_decode(ids_BT, skip_special_tokens=True), strict=True):
                found[number] = text
        return found

    return translate


if __name__ == "__main__":
    timed_decoding.main(load)
