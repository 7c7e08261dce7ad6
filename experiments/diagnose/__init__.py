"""What each head of a trained model attends to, and what is wrong with it."""
