"""The parts of scripts/benchmark.py; those that a contender runs are started by `python -m benchmarks.NAME`."""
