"""Code for every folder: errors, parts of messages, languages, the memory of the machine, worker processes.

Nothing here imports another folder. Code that only two folders share belongs in the lower one of the two.
"""
