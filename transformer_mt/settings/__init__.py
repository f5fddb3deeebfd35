"""The configuration of an experiment: every setting with its default, its meaning and its check.

Sections are pydantic models, and each function of another room takes the section that it needs. Wrong keys and values
in a file are errors that name the file, the line and the key.

Other rooms use:

    choosing: candidates, choose, choose_tuning, reached, Text
    corpus_settings: CorpusConfig, FiltersConfig, Form, PairedText, TokenizerConfig
    experiment: Config
    model_settings: ConvolutionalConfig, ModelConfig, RnnConfig, ScoreChoice, TransformerConfig
    reading: differences, dump_config, flat_settings, load_config, ONLY_FOR_TRAINING, other_meaning_than, parse_yaml
    reasoned: model_settings, new_configuration, tuned_configuration
    search_settings: changed, check_for_model, DecodingConfig, SplitSentences
    section: fingerprint, Kernels
    suggestions: settings_text
    training_settings: AveragingConfig, Optimizer, TrainingConfig, VALIDATION_METRICS, ValidationMetric
"""
