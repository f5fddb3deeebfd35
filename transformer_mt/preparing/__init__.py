"""The stage `prepare`, which turns a corpus into a data_dir.

Worker processes encode the pairs in shards. A shard is complete or does not exist. Every file has a checksum, and the
pairs that were left out are counted by reason.
"""
