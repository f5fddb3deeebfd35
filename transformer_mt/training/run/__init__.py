"""The parts of a run besides its updates: checkpoints, log, record, validation, signals.

A run that is killed at any instant resumes from its newest checkpoint.
"""
