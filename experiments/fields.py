"""What a config is to a type checker, and its fields in one dictionary."""

from typing import Any

from ml_collections import ConfigDict

# An ml_collections.ConfigDict. Its fields are data, so that no checker knows their types.
Config = Any


def flat(tree: Config | dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields as one dictionary, with dotted names."""
    result = {}
    for name, value in tree.items():
        dotted = f"{prefix}{name}"
        nested = isinstance(value, dict | ConfigDict)
        result |= flat(value, f"{dotted}.") if nested else {dotted: value}
    return result
