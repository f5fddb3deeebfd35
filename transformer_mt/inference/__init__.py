"""A trained model becomes a faster one that computes the same."""
