"""Everything that turns a config into a result."""
