"""Code for every room: errors, parts of messages, languages, the memory of the machine, worker processes.

Nothing here imports another room. Code that only two rooms share belongs into the lower room of the two.
"""
