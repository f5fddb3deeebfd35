"""Scores translations, compares systems, and finds their weaknesses.

sacreBLEU computes the metrics and their signatures. The other files record what a score depends on, test whether one
system is better than another, and look for weaknesses of a system.
"""
