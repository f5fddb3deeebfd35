"""A model becomes a directory that another program loads."""
