"""What a config is to a type checker."""

from typing import Any

# An ml_collections.ConfigDict. Its fields are data, so that no checker knows their types.
Config = Any
