"""Parameters and FLOPs against counts by hand."""

import pytest

import attention
from configs import base
from experiments.config import settings
from experiments.model import cost
from experiments.tasks.bytes import Bytes
from experiments.training import train

D, N, H, F, V, T = 8, 2, 4, 16, 256, 32


def tiny(**changes):
    config = base.get_config()
    with config.unlocked():
        config.attention = {"name": "full"}
        config.task = {"name": "bytes", "length": T}
        config.model.update({"num_layers": 3, "num_heads": N, "model_dim": D, "head_dim": H})
        config.model.update({"mlp_dim": F, "conv_width": 0})
        config.model.update(changes)
    return config


def counted(config):
    task, mixers = settings.task(config), settings.mixers(config)
    params = train.abstract_state(config, task).params
    return cost.parameters(params), cost.flops(config, mixers, task, params), mixers[0]


def test_parameters_by_hand():
    layer = 4 * D * N * H + (D * F + F) + (F * D + D) + 4 * D
    found, _, _ = counted(tiny())
    assert found["total"] == 3 * layer + V * D + 2 * D + D * V + V
    assert found["by_array"]["embedding.embedding"] == {"shape": [V, D], "dtype": "float32", "size": V * D}


@pytest.mark.parametrize(
    "changes", [{}, {"num_kv_heads": 1, "value_dim": 3}, {"mlp_dim": 0, "conv_width": 3}]
)
def test_flops_by_hand(changes):
    config = tiny(**changes)
    model = config.model
    kv_heads, value_dim = model.num_kv_heads or N, model.value_dim or H
    projections = D * N * H + D * kv_heads * (H + value_dim) + N * value_dim * D
    layer = projections + 2 * D * model.mlp_dim + model.conv_width * D
    dense = 2 * T * (3 * layer + D * V)
    _, found, variant = counted(config)
    mixing = variant.flops(
        batch=1, query_length=T, key_length=T, num_heads=N, num_kv_heads=kv_heads,
        head_dim=H, value_dim=value_dim, causal=True,
    )  # fmt: skip
    assert found["forward"] == dense + 3 * mixing.forward
    assert found["training"] == 3 * dense + 3 * (mixing.forward + mixing.backward)
    assert found["attention"] == 3 * (mixing.forward + mixing.backward)


@pytest.mark.parametrize(
    ("name", "hyperparameters", "expected"),
    [
        ("full", {}, False),
        ("dense", {}, False),
        ("window", {"window_size": T - 1}, False),
        ("window", {"window_size": T}, True),
        ("pooled", {"window_size": T}, True),
        ("pooled", {"window_size": 4}, False),
        ("lsh", {"chunk_size": 16, "num_hashes": 1}, False),
        ("lsh", {"chunk_size": 16, "num_hashes": 8}, True),
    ],
)
def test_a_variant_that_saves_nothing_is_told(name, hyperparameters, expected):
    config = tiny()
    variant = attention.make(name, **hyperparameters)
    assert cost.no_cheaper_than_full(config, variant, settings.task(config)) == expected


def test_a_pooled_head_is_counted_once_a_sequence():
    class Pooled(Bytes):
        head = "pooled"

    config, variant = tiny(), attention.make("full")
    by_token, by_sequence = settings.task(config), Pooled(length=T)
    params = train.abstract_state(config, by_token).params
    one, other = (cost.flops(config, [variant], task, params)["forward"] for task in (by_token, by_sequence))
    assert one - other == 2 * (T - 1) * D * V
