"""Text becomes batches."""
