"""What `plot` draws: numbers become pictures. Their files are written by one function."""
