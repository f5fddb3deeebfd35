"""The parts of scripts/benchmark.py: the races, what is raced on, and how a contender's process is run."""
