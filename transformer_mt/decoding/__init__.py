"""A model becomes sentences.

The search knows only `Seq2Seq`, no text. An engine, of PyTorch or of CTranslate2, searches for the translations of many
sentences. `Translator` and `Scorer` are the Python API.
"""
