"""What a line is: how text is cut into subword pieces, and where its sentences end.

The tokenizer is one of sentencepiece. What is recorded of the training lines helps to split lines in translation.

Other rooms use:

    existing_tokenizer: check_fits, check_sampling, check_symbols, open_existing, tokenizer_warnings
    sentences: split_sentences
    tokenizer: clean, holds_tokenizer, tagged, taken, Tokenizer, user_symbols
    training_lines: count_sentences, TrainingLines, TrainingLinesCounter
"""
