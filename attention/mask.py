"""What may be attended, as structured data. No dense mask in any signature: it would make all quadratic."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mask:
    """Which keys a query may attend to.

    `causal` is static; the arrays are None or given, and which are given is static too, so a variant that
    cannot honour one raises while it is traced. A pair (query, key) is visible if all that is given agrees:

    - `causal`: the key's position is at most the query's;
    - `query_valid` (B T), `key_valid` (B S): both are True (real tokens, not padding);
    - `query_segments` (B T), `key_segments` (B S): the two integers are equal;
    - `query_positions` (B T), `key_positions` (B S): what `causal` and windows compare. By default key j
      stands at j and query i at i + S - T, so that the last query sees the last key. Key positions without
      query positions are refused: half a coordinate system is nearly always a mistake.

    An axis of length 1 stands for the whole batch. Integers fit int32 by their type; wider ones are refused.
    Positions are below 2**30 in magnitude.
    """

    causal: bool = dataclasses.field(default=False, metadata={"static": True})
    query_valid: Bool[Array, "#B T"] | None = None
    key_valid: Bool[Array, "#B S"] | None = None
    query_segments: Int[Array, "#B T"] | None = None
    key_segments: Int[Array, "#B S"] | None = None
    query_positions: Int[Array, "#B T"] | None = None
    key_positions: Int[Array, "#B S"] | None = None

    @classmethod
    def for_self(cls, *, causal: bool = False, valid=None, segments=None, positions=None) -> "Mask":
        """The mask of self-attention: one description (each B T, or None) for queries and keys."""
        return cls(causal, valid, valid, segments, segments, positions, positions)

    def given(self) -> tuple[str, ...]:
        """Names of the arrays that are given."""
        fields = dataclasses.fields(self)
        return tuple(f.name for f in fields if f.name != "causal" and getattr(self, f.name) is not None)

    def positions(self, query_length: int, key_length: int) -> tuple[Int[Array, "b T"], Int[Array, "b S"]]:
        """Query positions (1 T or B T) and key positions (1 S or B S), int32, defaults filled in."""
        query_positions, key_positions = self.query_positions, self.key_positions
        if query_positions is None:
            query_positions = jnp.arange(query_length, dtype=jnp.int32)[None] + (key_length - query_length)
        if key_positions is None:
            key_positions = jnp.arange(key_length, dtype=jnp.int32)[None]
        return query_positions.astype(jnp.int32), key_positions.astype(jnp.int32)

    def to_array(self, query_length: int, key_length: int) -> Bool[Array, "b T S"]:
        """The boolean form, 1 T S or B T S, True = may attend. Quadratic: for small inputs and for tests."""
        query_positions, key_positions = self.positions(query_length, key_length)
        allowed = jnp.ones((1, query_length, key_length), bool)
        if self.causal:
            allowed &= key_positions[:, None, :] <= query_positions[:, :, None]
        if self.query_valid is not None:
            allowed &= self.query_valid[:, :, None]
        if self.key_valid is not None:
            allowed &= self.key_valid[:, None, :]
        if self.query_segments is not None and self.key_segments is not None:
            allowed &= self.query_segments[:, :, None] == self.key_segments[:, None, :]
        return allowed
