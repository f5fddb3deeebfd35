"""A model becomes sentences.

The search knows only `Seq2Seq`, no text. An engine, of PyTorch or of CTranslate2, searches for the translations of many
sentences. `Translator` and `Scorer` are the Python API.

Other rooms use:

    constraints: Constraints, Utf8
    ctranslate2_engine: CTranslate2Engine, import_ctranslate2, search_options
    engine: Engine, power_of_length, Sentence
    loading: check_files, EngineOptions
    sampling: greedy
    scorer: PairScore, Scorer
    translation: BLANK, PairAttention, Translation
    translator: Translator
    word_pieces: text_of, WORD, written_together
"""
