"""A selective state-space layer in place of attention, on `bytes`.

    python launch.py --config=configs/ssm.py

The rest is as in configs/full.py: 128 channels, before each layer the convolution over four bytes that all
of these models have.
"""

from ml_collections import ConfigDict

from configs import base


def get_config():
    config = base.get_config()
    config.name = "ssm"
    config.attention = ConfigDict({"name": "ssm"})
    return config
