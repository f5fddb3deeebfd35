"""Ids become logits: the papers, in plain PyTorch.

The Transformer is in attention.py, multi_head.py, positions.py, embeddings.py, transformer.py and cache.py; a student
reads these. variants.py has options that the paper does not have, and the other files have other architectures.
"""
