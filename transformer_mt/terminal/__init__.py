"""Code that the commands share: arguments, lines from files and pipes, output, summaries, signals and exit status.

Each line of input gives one line of output, in the same order.

Other rooms use:

    all_stages: run_all_stages
    cli
    evaluate_arguments: check, chosen_metrics, machine, parser, what_ran
    file_to_file: is_file_to_file, translate_file
    line_input: LineInput
    model_arguments: engine_options
    n_best_lists: is_number, n_best_lists, NBestList, TAKEN
    translation_output: OutputForm, translate_block, TranslationSummary, with_prefixes
"""
