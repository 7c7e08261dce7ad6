"""A model token by token predicts what it predicts from all tokens at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.model import decoding
from tests.experiments.model.test_transformer import TOKENS, Encoding, Pooling, build, run

PROMPT, LONGEST = 5, TOKENS.shape[1]
KINDS = [
    (),
    ("model.positions=sinusoidal", "model.norm=post", "attention.name=window", "attention.window_size=4"),
    ("model.positions=learned", "model.conv_width=3", "attention.name=delta"),
    ("model.positions=none", "model.num_layers=2", "model.mlp_dim=0", "attention.name=lsh"),
    ("attention.name=gru", "model.layers=attention,ssm,window", "model.num_layers=3"),
    ("model.compute_dtype=bfloat16", "attention.name=linear", "model.conv_width=2"),
]


@jax.jit
def continued(built, tokens, lengths):
    """Logits after the prompt and after each further token, B T-PROMPT+1 O."""
    logits, memory = decoding.prefill(built, tokens[:, :PROMPT], lengths, max_length=LONGEST)

    def one(memory, step):
        token = jnp.take_along_axis(tokens, (lengths + step)[:, None], 1)[:, 0]
        logits, memory = decoding.step(built, token, memory)
        return memory, logits

    _, rest = jax.lax.scan(one, memory, jnp.arange(LONGEST - PROMPT))
    return jnp.concatenate([logits[None], rest]).swapaxes(0, 1)


@pytest.mark.parametrize("fields", KINDS, ids=lambda fields: "-".join(fields) or "usual")
def test_token_by_token_equals_all_at_once(fields):
    """With positions of each kind, with a convolution, after prompts of different lengths."""
    built = build(*fields)
    lengths = np.array([PROMPT, PROMPT - 3], np.int32)
    expected, found = run(built, TOKENS), np.asarray(continued(built, TOKENS, lengths))
    tolerance = 3e-2 if "model.compute_dtype=bfloat16" in fields else 1e-4
    for row, length in enumerate(lengths):
        following = expected[row, length - 1 : length + LONGEST - PROMPT]
        np.testing.assert_allclose(found[row], following, rtol=tolerance, atol=tolerance)


def refused(match, use, kind: type[Exception] = ValueError):
    with pytest.raises(kind, match=match):
        use()


def test_what_cannot_be_continued_is_refused():
    for task in (Encoding, Pooling):
        refused("only a causal model", lambda task=task: decoding.prefill(
            build(task=task), TOKENS, max_length=LONGEST))  # fmt: skip
    built = build()
    refused("12 tokens; it must have from 1 to max_length=11", lambda: decoding.prefill(
        built, TOKENS, max_length=LONGEST - 1))  # fmt: skip
    refused("a prompt of 0 tokens", lambda: decoding.prefill(built, TOKENS[:, :0], max_length=LONGEST))
    learned = build("model.positions=learned")
    refused("learned positions end at 16", lambda: decoding.prefill(learned, TOKENS, max_length=17))
