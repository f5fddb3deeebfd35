"""What all commands share: their arguments, input and output, progress, and how they end."""
