"""The contenders of the benchmarks: who they are, and what each runs in a process of its own.

`training` and `decoding` name the contenders. The others are started by `python -m benchmarks.contenders.NAME`, in the
Python of the contender; `timed_training` and `timed_decoding` are the clocks that they share.
"""
