"""Reads sentence pairs from files of many forms and from data sets of the hub.

Every reader yields blocks of pairs with their places, so that an error names file and line. Filters and the search for
duplicates are also here, because they work on text.
"""
