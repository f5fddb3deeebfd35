"""Numbers and runs become pictures and a page of HTML: the stages `plot` and `report`.

matplotlib draws all of them. A damaged run gives a page that says so, or an error in one line.

Other rooms use:

    gathered: Notes, open_runs, SECTIONS
    gathered_texts: choose, gather_corpora, gather_tests, translate
    page: MARK, page_of, Report
    picture_file: check
    plot_attention
    plot_model
    plot_training
"""
