"""Text that a trained model writes."""
