"""A corpus becomes a data_dir: what the stage `prepare` does.

Worker processes encode the pairs in shards, each of which is there completely or not at all. Everything has a checksum,
and what was left out is counted by its reason.

Other rooms use:

    corpus_warnings: header_warnings, tag_warnings
    data_files: hold_data_dir
    fill_data_dir: fill_data_dir, held_out_of, Plan, splits_of
    look_at_data: look, MOST_PAIRS
    prepared: check_data, data_digests, files_of_test_set, is_training, Prepared, read_prepared, SUMMARY,
        trained_on, VALIDATED_ON, VALIDATION_TEXT
    tokenizer_training: check_tag, kept_tokenizer, ORIGIN, sample_of, TokenizerOrigin
"""
