"""Code that the commands share: arguments, lines from files and pipes, output, summaries, signals and exit status.

Each line of input gives one line of output, in the same order.
"""
