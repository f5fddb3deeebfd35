"""Fast functions from tensors to tensors, and the device on which they run.

Each function equals a plain PyTorch function, which its docstring names; a test compares both. No file here knows a
model.
"""
