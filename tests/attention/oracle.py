"""Softmax attention and its gradients in float64 NumPy, from the textbook and with all arrays written out.

Shares nothing with the library. Letters as there: B T S N K H V; G = N / K query heads share a key head.
"""

from typing import Any, NamedTuple

import numpy as np


class Attended(NamedTuple):
    """output B T N V; lse B T N; weight B N T S, before dropout. A row that sees nothing: 0, -inf, 0."""

    output: np.ndarray
    lse: np.ndarray
    weight: np.ndarray


class Gradients(NamedTuple):
    """Shapes of query, key and value."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray


def attend(
    query, key, value, allowed, scale: float, *, softcap=None, log_bias: Any = 0.0, kept=None
) -> Attended:
    """`allowed` B T S or B N T S; `log_bias` B S is added to logits, `kept` B N T S multiplies weights."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    logits, _ = _logits(query, key, allowed, scale, softcap, log_bias)
    weight, lse = _softmax(logits)
    mixed = weight if kept is None else weight * kept
    output = np.einsum("BNTS,BSNV->BTNV", mixed, _spread(value, query))
    return Attended(output, lse.transpose(0, 2, 1), weight)


def gradients(
    query, key, value, allowed, scale: float, d_output, d_lse, *, softcap=None, log_bias: Any = 0.0, kept=None
) -> Gradients:
    """Gradients of sum(d_output * output) + sum(d_lse * lse), the second over rows that see something."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    d_output, d_lse = np.asarray(d_output, np.float64), np.asarray(d_lse, np.float64).transpose(0, 2, 1)
    logits, slope = _logits(query, key, allowed, scale, softcap, log_bias)
    weight, _ = _softmax(logits)
    kept = np.ones_like(weight) if kept is None else kept
    d_weight = kept * np.einsum("BTNV,BSNV->BNTS", d_output, _spread(value, query))
    inner = (weight * d_weight).sum(-1, keepdims=True)
    d_score = weight * (d_weight - inner + d_lse[..., None]) * slope * scale
    d_query = np.einsum("BNTS,BSNH->BTNH", d_score, _spread(key, query))
    d_key = np.einsum("BNTS,BTNH->BSNH", d_score, query)
    d_value = np.einsum("BNTS,BTNV->BSNV", weight * kept, d_output)
    return Gradients(d_query, _gather(d_key, key), _gather(d_value, value))


def _logits(query, key, allowed, scale, softcap, log_bias):
    """Logits B N T S, -inf where not allowed, and their slope against scale * q.k."""
    scores = scale * np.einsum("BTNH,BSNH->BNTS", query, _spread(key, query))
    slope = np.ones_like(scores)
    if softcap is not None:
        bent = np.tanh(scores / softcap)
        scores, slope = softcap * bent, 1 - bent**2
    allowed = np.asarray(allowed, bool)
    allowed = allowed[:, None] if allowed.ndim == 3 else allowed
    log_bias = np.asarray(log_bias, np.float64)
    log_bias = log_bias[:, None, None, :] if log_bias.ndim == 2 else log_bias
    return np.where(allowed, scores + log_bias, -np.inf), slope


def _softmax(logits):
    """Weights and log-sum-exp over the last axis."""
    weight, lse = np.zeros_like(logits), np.full(logits.shape[:-1], -np.inf)
    sees = (logits > -np.inf).any(-1)
    rows = logits[sees]
    greatest = rows.max(-1, keepdims=True) if rows.size else np.zeros((0, 1))
    mass = np.exp(rows - greatest)
    weight[sees] = mass / mass.sum(-1, keepdims=True)
    lse[sees] = greatest[:, 0] + np.log(mass.sum(-1))
    return weight, lse


def _spread(array, query):
    """B S K ... -> B S N ...: query head n uses key head n // G."""
    return np.repeat(array, query.shape[2] // array.shape[2], axis=2)


def _gather(gradient, array):
    """Sum over the query heads that shared a head of `array`."""
    batch, length, heads, width = array.shape
    return gradient.reshape(batch, length, heads, -1, width).sum(3)
