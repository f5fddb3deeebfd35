"""Scores translations, compares systems, and finds their weaknesses.

sacreBLEU computes the metrics and their signatures. The other files record what a score depends on, test whether one
system is better than another, and look for weaknesses of a system.

Other rooms use:

    analysis: rarest_pieces, SUSPICIOUS
    comet: Comet
    comparing: check_comparison_file, compared_files, compared_runs, ComparedTest, comparison, read_translations,
        text_of, write_comparison
    evaluated_texts: also_in_training, check_same_tokenizer, chosen_test_sets, hypotheses_file, model_in,
        overlap_warning, read_test_sets, read_validation_set, results_dir, TestSet
    metrics: ALL_METRICS, check_tokeniser, check_words, corpus_score, MetricName, METRICS, tokenised_warning
    scores_json: AlsoInTraining, Details, print_scores, read_scores, Results, score_files, score_lines,
        TestSetScores, write_scores
    tuning: choices_of, tune, Tuning
"""
