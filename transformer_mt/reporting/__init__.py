"""What the files of runs say, and what their models do, becomes one page of HTML."""
