"""sentencepiece alone, in the benchmark of prepare: encodes both sides from memory, in one thread.

python -m benchmarks.contenders.encode_sentencepiece MODEL SOURCE TARGET
"""

import sys
import time
from pathlib import Path

from sentencepiece import SentencePieceProcessor

_AT_ONCE = 2000  # lines


def main(model: str, *files: str) -> None:
    """Print the seconds from the first line to the last, by the clock and of the processor; reading is not timed."""
    processor = SentencePieceProcessor(model_file=model)
    sides = [Path(file).read_text(encoding="utf-8").split("\n")[:-1] for file in files]
    clock, cpu = time.perf_counter(), time.process_time()
    for lines in sides:
        for start in range(0, len(lines), _AT_ONCE):
            processor.encode(lines[start : start + _AT_ONCE], out_type=int, add_eos=True, num_threads=1)
    print(time.perf_counter() - clock, time.process_time() - cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])
