"""Ids become logits."""
