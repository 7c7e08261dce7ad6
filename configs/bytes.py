"""Every attention that can be causal on `bytes`, side by side, with one seed.

    python launch.py --config=configs/bytes.py
    python launch.py --config=configs/bytes.py:moba,bigbird     # these alone

The first five, the recurrent layers and `mixed` are those of their own files. `bigbird`, `longformer` and
`sparse_transformer` are block_sparse with their papers' kinds of blocks: 1 local, 2 global and 3 random ones
of 64; 256 bytes back and 1 global block of 64; about 128 bytes back, and every fourth block of 32.
"""

from ml_collections import ConfigDict

from configs import base

VARIANTS = (
    "full,dense,window,pooled,lsh,block_sparse,bigbird,longformer,sparse_transformer,dilated,moba,native_sparse,"
    "linear,performer,window_linear,retention,gated_linear,delta,synthesizer,mean,none,gru,ssm,mixed"
)
FILES = {"window": "window128.py"} | {
    name: f"{name}.py" for name in ("full", "dense", "pooled", "lsh", "gru", "ssm", "mixed")
}
PRESETS = {
    "bigbird": {"name": "block_sparse", "local_blocks": 1, "global_blocks": 2, "random_blocks": 3},
    "longformer": {"name": "block_sparse", "local_blocks": 4, "global_blocks": 1, "random_blocks": 0},
    "sparse_transformer": {
        "name": "block_sparse", "block_size": 32, "local_blocks": 3, "global_blocks": 0, "random_blocks": 0,
        "stride": 4,
    },
}  # fmt: skip


def get_config(variant: str = "full"):
    config = base.get_config()
    config.name = f"bytes-{variant}"
    config.attention = ConfigDict(PRESETS.get(variant, {"name": variant}))
    return config


def get_sweep(variants: str = VARIANTS):
    return [{"config": FILES.get(name, f"bytes.py:{name}")} for name in variants.split(",")]
