"""Full attention on `bytes`: each byte sees all that come before it, up to 1024.

    python launch.py --config=configs/full.py

68 seconds on 2 cores. Expect about 2.65 bits per byte on the test files (CPython 3.11, seed 0); a bigram
model reaches 3.47, zlib 2.09.
"""

from ml_collections import ConfigDict

from configs import base


def get_config():
    config = base.get_config()
    config.name = "full"
    config.attention = ConfigDict({"name": "full"})
    return config
