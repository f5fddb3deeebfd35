"""Code for every room: errors, parts of messages, languages, the memory of the machine, worker processes.

Nothing here imports another room. Code that only two rooms share belongs into the lower room of the two.

Other rooms use:

    errors: CheckpointError, ConfigError, CorpusError, DirectoryError, EvaluationError, NotFiniteError, RankError,
        TokenizerError, TrainingError, TranslationError, UserError
    languages: BOS, EOS, has_spaces, name_columns, PAD, short_code, split_units, UNK
    memory: free_memory, machine_memory, peak_memory
    torchrun: num_processes
    wording: counted, cut, duration, LineProgress, two_decimals, visible
    worker_pool: num_cores, Workers
"""
