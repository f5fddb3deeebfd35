"""Logits become a better model: the loss, one update, the loop.

A student reads loss.py, update.py and loop.py. run/ has what a run needs around its updates, such as files and signals.
"""
