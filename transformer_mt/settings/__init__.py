"""The configuration of an experiment: every setting with its default, its meaning and its check.

Sections are pydantic models, and each function of another folder takes the section that it needs. Wrong keys and values
in a file are errors that name the file, the line and the key.
"""
