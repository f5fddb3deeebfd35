"""Turns text into batches of token ids."""
