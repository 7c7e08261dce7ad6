"""A transformer around any mixer, and what it costs by count."""
