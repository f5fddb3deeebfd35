"""A server as people write it in ten lines: FastAPI and CTranslate2. Arguments: EXPORT_DIR BEAM --port N."""

import json
import sys
from pathlib import Path
from typing import Any

import ctranslate2
import uvicorn
from fastapi import Body, FastAPI
from sentencepiece import SentencePieceProcessor

from transformer_mt.base.cores import num_cores


def application(directory: Path, beam: int) -> FastAPI:
    models = sorted(directory.glob("tokenizer*.model"))  # one, or that of the source before that of the target
    source, target = (SentencePieceProcessor(model_file=str(models[i])) for i in (0, -1))
    translator = ctranslate2.Translator(str(directory), inter_threads=num_cores(), intra_threads=1)
    app = FastAPI()

    @app.post("/translate")
    def translate(q: str = Body(embed=True)) -> dict[str, str]:
        pieces = source.encode(q, out_type=str)
        [found] = translator.translate_batch([pieces], beam_size=beam, max_decoding_length=len(pieces) + 50)
        return {"translatedText": target.decode_pieces(found.hypotheses[0])}

    @app.get("/languages")
    def languages() -> Any:
        return json.loads('[{"code": "en", "targets": ["de"]}]')

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


if __name__ == "__main__":
    directory, beam, _, port = sys.argv[1:]
    uvicorn.run(application(Path(directory), int(beam)), port=int(port), log_level="error")
