"""The shapes of models that the benchmarks measure, by name."""

from transformer_mt.settings.model_settings import TransformerConfig

# With the size of a vocabulary. Speeds of tiny mean nothing: it tries the scripts.
SHAPES = {
    "tiny": (TransformerConfig(encoder_layers=1, decoder_layers=1, d_model=16, ffn_dim=32, num_heads=2), 500),
    "small": (TransformerConfig(encoder_layers=3, decoder_layers=3, d_model=256, ffn_dim=1024, num_heads=4), 8000),
    "base": (TransformerConfig(), 8000),
    "base32k": (TransformerConfig(), 32000),
    "big": (TransformerConfig(d_model=1024, ffn_dim=4096, num_heads=16), 32000),
}
