"""A model becomes sentences."""
