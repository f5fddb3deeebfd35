"""The parts of a run besides its updates: checkpoints, log, record, validation, signals.

A run that is killed at any instant resumes from its newest checkpoint.

Other rooms use:

    beginning: build_learner, choose_layout, choose_rank_device
    candidates: best_of, Candidate, find_candidates, initial_scores, MOST_LOST, validate_candidates
    checkpoint: check_settings, check_tokenizer, finish_saving, load_progress, newest_whole_checkpoint,
        point_best_at, Saver
    estimate: estimate, trial, updates_of
    run_record: copy_from_data, on_data, record_start, say_of_data
    running: Run
    validation: load_validation, shown_metrics, validate, ValidationScores, ValidationSet
"""
