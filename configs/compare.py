"""The five first variants side by side, on `bytes` with one seed and on recall with eight.

python launch.py --config=configs/compare.py                 # 19 minutes on 2 cores
python launch.py --config=configs/compare.py:window,mine     # these variants
"""

from configs import bytes as on_bytes

VARIANTS = "full,dense,window,pooled,lsh"
# Half the length of recall.py's, and half the steps, so that all is done in half an hour on 2 cores; `full`
# is solved after 150 steps.
RECALL = {
    "seeds": (0, 1, 2, 3, 4, 5, 6, 7),
    "task.length": 64,
    "task.num_pairs": 16,
    "train.steps": 200,
}


def get_sweep(variants: str = VARIANTS):
    return on_bytes.get_sweep(variants) + [
        {"config": f"recall.py:{name}", **RECALL} for name in variants.split(",")
    ]
