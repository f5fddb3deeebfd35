"""Reads sentence pairs from files of many forms and from the hub."""
