"""A trained model becomes a directory of another program: CTranslate2, or Hugging Face's Marian.

Each export computes the same as the model, which is tested before it is kept.

Other rooms use:

    ctranslate2_format
    huggingface
    trained_model: random_pairs, read_trained, Trained
"""
