"""The parts of scripts/benchmarks/gpu.py, and what they share.

`command` reads the arguments, `report` measures a part within its time and writes its JSON, and `own_process` gives a
measurement a process of its own. Each other module but `settings` and `machine` is a part.
"""
