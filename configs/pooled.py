"""pooled attention on `bytes`."""

from ml_collections import ConfigDict

from configs import base


def get_config():
    config = base.get_config()
    config.name = "pooled"
    config.attention = ConfigDict({"name": "pooled"})
    return config
