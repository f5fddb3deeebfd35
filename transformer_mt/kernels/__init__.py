"""Tensors in, tensors out: fast forms, each of which names the plain PyTorch that it equals."""
