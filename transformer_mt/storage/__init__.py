"""Writes files completely or not at all, locks them, and checks them when it reads them.

A stage changes only files that it made itself. The formats that several stages share, such as run.json, are also here.
"""
