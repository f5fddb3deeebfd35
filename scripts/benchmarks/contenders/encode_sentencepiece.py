"""sentencepiece alone, in the benchmark of prepare: encodes both sides from memory, in one thread.

python -m benchmarks.contenders.encode_sentencepiece MODEL SOURCE TARGET
"""

import sys
import time
from itertools import islice
from pathlib import Path

from sentencepiece import SentencePieceProcessor

_AT_ONCE = 2000  # lines


def main(model: str, *files: str) -> None:
    """Print the seconds that encoding took, by the clock and of the processor; reading is not timed."""
    processor = SentencePieceProcessor(model_file=model)
    clock = cpu = 0.0
    for path in files:
        with Path(path).open(encoding="utf-8", newline="\n") as file:
            while lines := [line.rstrip("\n") for line in islice(file, _AT_ONCE)]:
                began = time.perf_counter(), time.process_time()
                processor.encode(lines, out_type=int, add_eos=True, num_threads=1)
                clock, cpu = clock + time.perf_counter() - began[0], cpu + time.process_time() - began[1]
    print(clock, cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])
