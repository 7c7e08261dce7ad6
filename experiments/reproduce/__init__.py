"""A record made again: by which commands, and whether it agrees."""
