"""Writes files completely or not at all, checks them, and tells them apart from those of other programs."""
