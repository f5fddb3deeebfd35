"""A server: its routes and limits over HTTP, its page, its jobs, and the processes that hold the models and do them.

The HTTP process imports no PyTorch: each model has its own process.
"""
