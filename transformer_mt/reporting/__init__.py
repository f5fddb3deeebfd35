"""Draws pictures of models and runs, and writes a page of HTML about runs: the stages `plot` and `report`.

matplotlib draws all pictures. If a run is damaged, the page says so, or there is an error message of one line.

Other rooms use:

    gathered: Notes, open_runs, SECTIONS
    gathered_texts: choose, gather_corpora, gather_tests, translate
    page: MARK, page_of, Report
    picture_file: check
    plot_attention
    plot_model
    plot_training
"""
