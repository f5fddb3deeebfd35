"""Training on several devices, or with little memory.

One process alone is one rank.
"""
