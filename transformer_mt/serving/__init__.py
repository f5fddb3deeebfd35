"""A server's work besides HTTP: jobs of texts, and the processes that hold the models and do them.

The HTTP process imports no PyTorch: each model has its own process.
"""
