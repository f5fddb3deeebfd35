"""Training on several devices, or with little memory.

One process alone is one rank.

Other rooms use:

    distributed: all_ranks, Ranks, shard, sharded_like, whole, whole_parameters
    out_of_memory: is_out_of_memory, Room
"""
