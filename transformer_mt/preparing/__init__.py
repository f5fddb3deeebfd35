"""The stage `prepare`, which turns a corpus into a data_dir.

Worker processes encode the pairs in shards. A shard is complete or does not exist. Every file has a checksum, and the
pairs that were left out are counted by reason.

Other rooms use:

    data_files: hold_data_dir
    fill_data_dir: fill_data_dir, held_out_of, open_splits, open_texts, Plan, split_digests, splits_of
    fine_tuning: mixed_corpora, NEW, old_text, OldText
    look_at_data: look, MOST_PAIRS
    measured_text: measure, SideMeasures, table, TextMeasures
    prepared: check_data, data_digests, files_of, is_training, Prepared, read_prepared, SUMMARY, trained_on,
        VALIDATED_ON, validation_digest, VALIDATION_TEXT
    text_warnings: check_text, corpus_warnings, FEWEST_PAIRS, FEWEST_TO_TUNE, text_warnings
    tokenizer_training: check_tag, kept_tokenizer, ORIGIN, sample_of, TokenizerOrigin
"""
