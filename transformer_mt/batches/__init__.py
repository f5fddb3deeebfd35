"""Token ids on disk become batches.

Ids are memory-mapped, so memory does not grow with the corpus. The order of the pairs depends on the seed alone, so a
resumed run continues with the same pairs.
"""
