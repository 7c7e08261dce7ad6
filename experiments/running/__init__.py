"""One cell from its first line to its record and its exit code."""
