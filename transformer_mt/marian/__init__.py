"""Directories of Hugging Face's MarianMT, such as those of OPUS-MT, become models of this package.

The architecture is the same (Junczys-Dowmunt et al. 2018): only the names and the order of numbers and pieces differ.
"""
