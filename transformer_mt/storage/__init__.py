"""Files on disk: written whole, checked, and told apart from those of other programs."""
