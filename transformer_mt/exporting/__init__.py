"""Writes a trained model in the format of another program: CTranslate2, Hugging Face's Marian, or Argos Translate.

An exported model must compute the same as the original. `export` checks this for CTranslate2; tests check Marian.
"""
