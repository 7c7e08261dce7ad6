"""Numbers as they are quoted: one sentence and a BibTeX entry for each run."""
