"""Full attention on `bytes` by the score matrix written out: the same numbers, slower and larger.

    python launch.py --config=configs/dense.py

149 seconds on 2 cores. Expect about 2.65 bits per byte on the test files (CPython 3.11, seed 0); a bigram
model reaches 3.47, zlib 2.09.
"""

from ml_collections import ConfigDict

from configs import base


def get_config():
    config = base.get_config()
    config.name = "dense"
    config.attention = ConfigDict({"name": "dense"})
    return config
