"""Attention to the last 128 bytes on `bytes`."""

from ml_collections import ConfigDict

from configs import base


def get_config():
    config = base.get_config()
    config.name = "window128"
    config.attention = ConfigDict({"name": "window", "window_size": 128})
    return config
