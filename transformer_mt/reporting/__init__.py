"""Draws pictures of models and runs, and writes a page of HTML about runs: the stages `plot` and `report`.

matplotlib draws all pictures. If a run is damaged, the page says so, or there is an error message of one line.
"""
