"""Cuts text into subword pieces, and lines into sentences.

The tokenizer is sentencepiece. Statistics of the training lines decide which lines translation splits into sentences.
"""
