"""What the commands share: arguments, input and output, progress, and how they end."""
