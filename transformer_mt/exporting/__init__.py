"""Writes a trained model in the format of another program: CTranslate2, or Hugging Face's Marian.

An exported model must compute the same as the original. `export` checks this for CTranslate2; tests check Marian.
"""
