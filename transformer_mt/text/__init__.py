"""Cuts text into subword pieces, and lines into sentences.

The tokenizer is sentencepiece. Statistics of the training lines decide which lines translation splits into sentences.

Other rooms use:

    existing_tokenizer: check_fits, check_sampling, check_symbols, open_existing, tokenizer_warnings
    sentences: split_sentences
    tokenizer: clean, holds_tokenizer, tagged, taken, Tokenizer, user_symbols
    training_lines: count_sentences, quantile, TrainingLines, TrainingLinesCounter
"""
