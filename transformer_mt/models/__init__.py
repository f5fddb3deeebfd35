"""Ids become logits: the papers, in plain PyTorch.

The Transformer is in attention.py, embeddings.py and transformer.py; a student reads these. variants.py has options
that the paper does not have, and the other files have other architectures.
"""
