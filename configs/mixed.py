"""Two kinds of layer in turn, on `bytes`: linear attention, and a window of 64 bytes (as in "Based").

    python launch.py --config=configs/mixed.py
    python launch.py --config=configs/mixed.py --config.attention.name=ssm

`model.layers` has the labels of the layers' mixers in turn: `attention` is config.attention, any other one a
section of config.mixers.

Expect about 2.66 bits per byte on the test files (CPython 3.11, seed 0); a bigram model reaches 3.47, zlib
2.09.
"""

from ml_collections import ConfigDict

from configs import base


def get_config():
    config = base.get_config()
    config.name = "mixed"
    config.attention = ConfigDict({"name": "linear"})
    config.mixers = ConfigDict({"local": {"name": "window", "window_size": 64}})
    config.model.layers = "attention,local"
    return config
