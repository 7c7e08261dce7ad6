"""From a file and a command line to one resolved and checked config."""
