"""A gated recurrent unit in place of attention, on `bytes`.

    python launch.py --config=configs/gru.py

The rest is as in configs/full.py; the state is as wide as its heads together, 128.
"""

from ml_collections import ConfigDict

from configs import base


def get_config():
    config = base.get_config()
    config.name = "gru"
    config.attention = ConfigDict({"name": "gru"})
    return config
