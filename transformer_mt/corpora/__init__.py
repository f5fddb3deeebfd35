"""Files of many forms, and data sets of the hub, become sentence pairs.

Every reader gives blocks of pairs with their places, so that an error names file and line. Filters, and what finds
pairs that are there twice, are here because they see text only.

Other rooms use:

    corpus: BAD_LINE, BadPair, Block, Corpus
    filters: Languages, PieceFilters, REASONS, TextFilters
    opening: corpus_digest, corpus_files, open_corpus
    repeated: find_duplicates, HeldOut, Overlaps, pair_key, Rows
    text_files: decode_lines, InvalidText, is_compressed, limited_lines, read_lines, survey, survey_of
"""
