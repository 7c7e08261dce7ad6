"""Sweeps: many cells from one command, each in a process of its own."""
