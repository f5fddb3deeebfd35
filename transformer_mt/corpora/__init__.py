"""Reads sentence pairs from files of many forms and from data sets of the hub.

Every reader yields blocks of pairs with their places, so that an error names file and line. Filters and the search for
duplicates are also here, because they work on text.

Other rooms use:

    corpus: BAD_LINE, BadPair, Block, Corpus
    filters: Languages, letters_by_script, PieceFilters, REASONS, script_of, TextFilters
    opening: corpus_digest, corpus_files, open_corpus
    repeated: find_duplicates, HeldOut, Overlaps, pair_key, Rows
    shares: digest_of_part, parts_of, Range
    text_files: decode_lines, InvalidText, is_compressed, limited_lines, read_lines, survey, survey_of
    text_traits: ENTITY, PIECE, telling_words, TOKENISED, TOKENISED_SHARE
"""
