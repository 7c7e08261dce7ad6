"""Text as bytes, and bytes as what can be read of them."""

import numpy as np

NAMED = {" ": "␣", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
INSIDE = "·"  # a byte inside a character, whose first byte shows it


def encode(text: str) -> np.ndarray:
    """UTF-8, int32. Raises ValueError for what is no text, as a command line may hold."""
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)


def write(tokens: np.ndarray) -> str:
    """The text, U+FFFD where bytes are none."""
    return bytes(bytearray(int(token) for token in tokens)).decode(errors="replace")


def decode(tokens: np.ndarray) -> list[str]:
    """For each byte the character that it begins, or what it is where it begins none."""
    data, words = bytes(bytearray(int(token) for token in tokens)), []
    while len(words) < len(data):
        character = _first(data[len(words) : len(words) + 4])
        words += [character[1], *[INSIDE] * (character[0] - 1)]
    return words


def _first(data: bytes) -> tuple[int, str]:
    """How many bytes the first character has, and how it is shown."""
    for size in range(1, len(data) + 1):
        try:
            character = data[:size].decode()
        except UnicodeDecodeError:
            continue
        if character.isprintable() and not character.isspace():
            return size, character
        return size, NAMED.get(character, "\\x" + data[:size].hex())
    return 1, f"\\x{data[0]:02x}"
