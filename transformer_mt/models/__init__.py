"""Ids become logits: the papers, in plain PyTorch.

The Transformer is in attention.py, multi_head.py, positions.py, embeddings.py, transformer.py and cache.py; a student
reads these. variants.py has options that the paper does not have, and the other files have other architectures.

Other rooms use:

    attention: Sight
    attention_weights: attends_to_source, Attention, attention_to_source, attention_weights, FloatArray, index_of
    convolutional: Convolutional
    ensemble: Ensemble
    interface: DecoderState, Seq2Seq
    layouts: Packed, Sentences, unpadded, whole_mask
    multi_head: Memory, MultiHeadAttention
    positions: sinusoidal
    rnn: Rnn
    transformer: DecoderLayer, EncoderLayer, FeedForward, Residual, Transformer
    variants: ACTIVATIONS, VariedAttention, VariedFeedForward, VariedTransformer
"""
