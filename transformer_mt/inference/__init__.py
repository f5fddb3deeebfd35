"""A model becomes a faster model that computes the same.

fast.py lists the parts that are replaced by faster ones, unless `training.kernels=plain` or `--plain` is given. A
search also freezes the weights, and on a GPU it records its steps as CUDA graphs.
"""
