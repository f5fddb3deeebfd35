"""Runs Sockeye's trainer; it logs after every update instead of 50, and counts real target tokens.

PYTHON -m benchmarks.contenders.train_sockeye OPTIONS OF sockeye-train
"""

from dataclasses import replace

from sockeye import constants, data_io, train

create_batch = data_io.create_batch_from_parallel_sample


def create_counted_batch(source, target, label, prepended_source_length=None):  # type: ignore[no-untyped-def]
    batch = create_batch(source, target, label, prepended_source_length)
    return replace(batch, tokens=int((label != constants.PAD_ID).sum()))


if __name__ == "__main__":
    constants.MEASURE_SPEED_EVERY = 1
    data_io.create_batch_from_parallel_sample = create_counted_batch
    train.main()
