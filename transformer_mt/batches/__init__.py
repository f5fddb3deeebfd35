"""Token ids on disk become batches.

Ids are memory-mapped, so memory does not grow with the corpus. The order of the pairs depends on the seed alone, so a
resumed run continues with the same pairs.

Other rooms use:

    batching: Batch, ordered_batches, Pairs, weights_of
    encoded: described, dtype_of, EncodedCorpus, EncodedText, FILES, IDS, INDEX, KEPT, LINES, piece_counts,
        places_of_pairs, RECORD, ShardIndex, SIZES
    loader: BatchLayout, Loader, Position, split_evenly
    packing: PackedBatch
    subword_sampling: SubwordSampler
"""
