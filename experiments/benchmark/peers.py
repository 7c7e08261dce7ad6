"""What others have published for what our variants compute: how each is called, and how its maths differs.

Torch and what is built on it are imported when a peer is built, never before; they are the extra `peers`.
"""

import contextlib
import dataclasses
import importlib
import importlib.metadata
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import attention
from attention.performer import random_directions
from experiments.benchmark import inputs

# The defaults of our variants; a test holds them equal.
WINDOW, HASHES, BUCKET = 128, 4, 64
LANDMARKS, TURNS, PROJECTED, FEATURES = 64, 6, 128, 256
TWO_SIDED = "-two-sided"  # after the name of a variant of ours that can be causal, and here is not
FLEX_BLOCK = 128
INSTALL = "pip install -e '.[peers]'"

Call = Callable[[Any, Any, Any], Any]  # query, key and value -> output


@dataclasses.dataclass(frozen=True)
class Peer:
    """One function of another library, called as its users would."""

    variant: str  # ours that it is compared with
    settings: str
    build: Callable[[int], Call]  # from a length; of arrays of jax B T N H, or tensors of torch
    packages: tuple[str, ...] = ()  # distributions that decide its numbers; none: jax itself
    differs: str = ""  # how its maths differs from the variant's; nothing where it is the same
    bytes_per_token: int = (
        0  # of its temporaries forward and backward, at 8 heads of 64: measured, rounded up
    )
    heads_first: bool = True  # tensors are B N T H, else B T N H


def ours(name: str) -> attention.Attention:
    """A variant of ours by the name of its cells."""
    return attention.make(name.removesuffix(TWO_SIDED))


def two_sided(name: str) -> bool:
    """Whether a contender sees later tokens: a variant that is asked to, or cannot help it, and its peers."""
    name = PEERS[name].variant if name in PEERS else name
    return name.endswith(TWO_SIDED) or not ours(name).capabilities.causal


def jax_nn(length: int) -> Call:
    del length

    def call(query, key, value):
        return jax.nn.dot_product_attention(query, key, value, is_causal=True, implementation="xla")

    return call


def torch_sdpa(length: int) -> Call:
    del length
    attend = importlib.import_module("torch.nn.functional").scaled_dot_product_attention
    return lambda query, key, value: attend(query, key, value, is_causal=True)


def torch_flex(length: int) -> Call:
    """Compiled: what is not compiled holds all scores."""
    torch = importlib.import_module("torch")
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    mask = _causal_blocks(length)
    attend = torch.compile(flex.flex_attention, dynamic=False)
    return lambda query, key, value: attend(query, key, value, block_mask=mask)


def _causal_blocks(length: int) -> Any:
    """What `create_block_mask` gives, which takes about 11 bytes for each pair of tokens: 11 GB at 32768."""
    torch = importlib.import_module("torch")
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    count = -(-length // FLEX_BLOCK)
    block = torch.arange(count, dtype=torch.int32)
    full = block.expand(1, 1, count, count).contiguous()  # row i: the first i, entirely
    edge = block[:, None].expand(1, 1, count, count).contiguous()  # and i, in part
    return flex.BlockMask.from_kv_blocks(
        torch.ones(1, 1, count, dtype=torch.int32),
        edge,
        block[None, None],
        full,
        BLOCK_SIZE=FLEX_BLOCK,
        mask_mod=lambda batch, head, query, key: query >= key,
        seq_lengths=(length, length),
    )


def local_attention(length: int) -> Call:
    """Its exact window of w sees w + 1 keys, so one less; padding makes its blocks fit the length."""
    del length
    return _local(window_size=WINDOW - 1, exact_windowsize=True)


def local_attention_blocks(length: int) -> Call:
    del length
    return _local(window_size=WINDOW)


def _local(**settings: Any) -> Call:
    local = importlib.import_module("local_attention")
    return local.LocalAttention(
        causal=True, look_backward=1, autopad=True, use_rotary_pos_emb=False, **settings
    )


def reformer(length: int, n_hashes: int = HASHES, bucket_size: int = BUCKET) -> Call:
    """Its keys are its queries: `key` is not read."""
    del length
    reformer_pytorch = importlib.import_module("reformer_pytorch")
    attend = reformer_pytorch.LSHAttention(n_hashes=n_hashes, bucket_size=bucket_size, causal=True).eval()

    def call(query, key, value):
        output, _, _ = attend(query.flatten(0, 1), value.flatten(0, 1))
        return output.view(value.shape)

    return call


def nystrom(length: int) -> Call:
    del length
    num_heads, head_dim = inputs.SHAPE["num_heads"], inputs.SHAPE["head_dim"]
    attend = importlib.import_module("nystrom_attention").NystromAttention(
        dim=num_heads * head_dim, dim_head=head_dim, heads=num_heads, num_landmarks=LANDMARKS,
        pinv_iterations=TURNS, residual=False,
    )  # fmt: skip
    attend = _without_output(attend)

    def call(query, key, value):
        with _giving([(attend.to_qkv, _Chunks(x.flatten(2) for x in (query, key, value)))]):
            return attend(query.flatten(2)).view(value.shape)

    return call


def linformer(length: int) -> Call:
    """With the projections along the sequence that our `linformer` has at this length."""
    torch = importlib.import_module("torch")
    num_heads, head_dim = inputs.SHAPE["num_heads"], inputs.SHAPE["head_dim"]
    attend = importlib.import_module("linformer").LinformerSelfAttention(
        dim=num_heads * head_dim, seq_len=length, k=PROJECTED, heads=num_heads
    )
    attend = _without_output(attend)
    params = inputs.besides(ours("linformer"), length)["params"]
    for own, name in ((attend.proj_k, "key_projection"), (attend.proj_v, "value_projection")):
        own.data.copy_(torch.from_numpy(np.array(params[name])))

    def call(query, key, value):
        projections = (attend.to_q, attend.to_k, attend.to_v)
        tensors = [x.flatten(2) for x in (query, key, value)]
        with _giving(list(zip(projections, tensors, strict=True))):
            return attend(tensors[0]).view(value.shape)

    return call


def performer(length: int, causal: bool = True) -> Call:
    """With the random matrix of our `performer`."""
    del length
    torch, head_dim = importlib.import_module("torch"), inputs.SHAPE["head_dim"]
    attend = importlib.import_module("performer_pytorch").FastAttention(
        dim_heads=head_dim, nb_features=FEATURES, causal=causal
    )
    attend.projection_matrix.copy_(torch.from_numpy(random_directions(FEATURES, head_dim, 0)))
    return attend.eval()


def performer_two_sided(length: int) -> Call:
    return performer(length, causal=False)


def _without_output(module: Any) -> Any:
    """In evaluation, and without the projection of its output."""
    module.to_out = importlib.import_module("torch").nn.Identity()
    return module.eval().requires_grad_(False)


@contextlib.contextmanager
def _giving(outputs: list[tuple[Any, Any]]) -> Iterator[None]:
    """Meanwhile each module gives the output beside it, whatever it is asked; it keeps none of them."""
    for module, output in outputs:
        module.forward = lambda _, output=output: output
    try:
        yield
    finally:
        for module, _ in outputs:
            del module.forward


class _Chunks(tuple):
    """What a tensor is to those who only ask for its chunks."""

    def chunk(self, count: int, dim: int) -> "_Chunks":
        assert (count, dim) == (len(self), -1)
        return self


OF_REFORMER = """
Both hash by random rotations, sort, cut into chunks of the bucket's size, see their own chunk and the one
before, normalise keys, leave a token's own position out unless it is alone, and merge rounds by their
log-sum-exp. Six things differ. (1) Its rotations are new in every call; `lsh` keeps its seed's. (2) It has
T / bucket_size buckets, `lsh` 16 at any length. (3) It cuts wherever a chunk is full, and sees across the
edges of buckets; `lsh` cuts inside buckets and sees its own only. (4) The first chunk of a round looks back
at the last of the round before, that of the first round at the last of all; `lsh` stays in its round. (5) A
pair that meets in several rounds counts in each; in `lsh` once. (6) Later tokens move the edges of its
chunks, so which earlier tokens meet depends on the future; in `lsh` they move none. In one round of two
buckets of T / 2 the two are equal, and a test says so.
""".replace("\n", " ").strip()

OF_NYSTROM = """
Its inverse starts from the greatest row and column sums of all heads of all rows of the batch, `nystrom`
from each matrix's own, so that rows do not see each other: with one head and one row the two are equal, and
a test says so. A length that the landmarks do not divide it fills with zeros in front, which count as keys
unless there is a mask; `nystrom` lengthens the first segments.
""".replace("\n", " ").strip()

OF_PERFORMER = """
To each feature it adds 1e-4 after dividing by exp(m), where m is the greatest w.x of a query, and for keys
that of all keys of a head: beside it most keys' features, which exp(-|x|^2 / 2) makes smaller still, are
small. `performer` adds 1e-6 to a token's features once the greatest of them is 1. For standard normal inputs
of width 64 at length 384 outputs without any such addition are 5e-4 away from those of `performer`, and 2.4
from those of the peer. With nothing added the two are equal, and a test says so.
""".replace("\n", " ").strip()

BASELINE = "jax.nn.dot_product_attention"
PEERS = {
    BASELINE: Peer("full", '`is_causal=True, implementation="xla"`', jax_nn),
    "torch.scaled_dot_product_attention": Peer(
        "full",
        "`is_causal=True`: the fused kernel of the CPU",
        torch_sdpa,
        ("torch",),
        bytes_per_token=40_000,
    ),
    "torch.flex_attention": Peer(
        "full",
        "`torch.compile(flex_attention)` with a causal block mask that is made before the clock starts",
        torch_flex,
        ("torch",),
        bytes_per_token=40_000,
    ),
    "local-attention": Peer(
        "window",
        f"`LocalAttention(window_size={WINDOW - 1}, causal=True, exact_windowsize=True, autopad=True, "
        f"use_rotary_pos_emb=False)`: its exact window of w sees w + 1 keys, so this one sees {WINDOW}",
        local_attention,
        ("torch", "local-attention"),
        bytes_per_token=100_000,
    ),
    "local-attention-blocks": Peer(
        "window",
        f"`LocalAttention(window_size={WINDOW}, causal=True, autopad=True, use_rotary_pos_emb=False)`: "
        "by blocks, its default",
        local_attention_blocks,
        ("torch", "local-attention"),
        f"A query sees its block up to itself and the whole block before: {WINDOW + 1} to {2 * WINDOW} keys "
        f"by its place in the block, where `window` sees {WINDOW} from any place.",
        100_000,
    ),
    "reformer-pytorch": Peer(
        "lsh",
        f"`LSHAttention(n_hashes={HASHES}, bucket_size={BUCKET}, causal=True)`",
        reformer,
        ("torch", "reformer-pytorch", "local-attention"),
        OF_REFORMER,
        300_000,
    ),
    "nystrom-attention": Peer(
        "nystrom",
        f"`NystromAttention(num_landmarks={LANDMARKS}, pinv_iterations={TURNS}, residual=False)`, its "
        "projections left out",
        nystrom,
        ("torch", "nystrom-attention"),
        OF_NYSTROM,
        40_000,
        heads_first=False,
    ),
    "linformer.LinformerSelfAttention": Peer(
        "linformer",
        f"`LinformerSelfAttention(seq_len=T, k={PROJECTED})`, its projections to queries, keys, values and "
        "output left out",
        linformer,
        ("torch", "linformer"),
        bytes_per_token=40_000,
        heads_first=False,
    ),
    "performer-pytorch": Peer(
        "performer",
        f"`FastAttention(nb_features={FEATURES}, causal=True)` with the random matrix of `performer`; "
        "without a kernel of another package for CUDA it holds the sums of keys and values after each token",
        performer,
        ("torch", "performer-pytorch"),
        f"{OF_PERFORMER} In the causal form, whose denominators have 1e-6 more, an early row sees by these "
        "additions how great later keys are.",
        2_200_000,
    ),
    "performer-pytorch-two-sided": Peer(
        f"performer{TWO_SIDED}",
        f"`FastAttention(nb_features={FEATURES})` with the random matrix of `performer`",
        performer_two_sided,
        ("torch", "performer-pytorch"),
        OF_PERFORMER,
        130_000,
    ),
}


def missing(name: str) -> list[str]:
    """The packages of a peer that are not installed."""
    return [package for package, version in versions(name).items() if version is None]


def versions(name: str) -> dict[str, str | None]:
    """Installed version of each package of a peer, None where it is not installed; {} for what is no peer."""
    return {package: _version(package) for package in (PEERS[name].packages if name in PEERS else ())}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclasses.dataclass(frozen=True)
class Goal:
    """A variant, forward and backward, is at least so many times as fast as each of the peers."""

    text: str
    variant: str
    peers: tuple[str, ...]
    least: float
    length: int = 8192
    tried: str = ""  # towards it, and what remains: said where it is missed


GOALS = (
    Goal(
        "no slower than PyTorch's fused kernel",
        "full",
        ("torch.scaled_dot_product_attention",),
        1.0,
        tried=(
            "tried were tiles of 64 to 512 queries and 64 to 512 keys (the largest that fit the caches are "
            "fastest), keys before queries in a tile, so that no product turns one (faster), heads in parts "
            "side by side (no faster), and keys and values kept turned as a whole (slower). What remains is "
            "shown below: most of it is XLA's own products."
        ),
    ),
    Goal(
        "at least 2x local-attention",
        "window",
        ("local-attention", "local-attention-blocks"),
        2.0,
        tried=(
            "tried were blocks of 32 to 256 queries (64 are fastest: longer ones waste products), heads in "
            "parts side by side (no faster), stretches of the sequence side by side as rows of a batch "
            "(little faster), and XLA without its library of fused products (no faster). What remains: a "
            "block's operations are so small that most use one thread, and there are many."
        ),
    ),
    Goal(
        "at least 3x reformer-pytorch",
        "lsh",
        ("reformer-pytorch",),
        3.0,
        tried=(
            "tried were blocks of 32 to 256 queries (64 are fastest), products in place of sums over two "
            "arrays' product (faster), and rounds in front of heads, so that sorted arrays are not turned "
            "(faster). What remains is shown below: mostly moving tokens into each round's order and back."
        ),
    ),
    Goal("no slower than nystrom-attention", "nystrom", ("nystrom-attention",), 1.0),
    Goal("no slower than linformer", "linformer", ("linformer.LinformerSelfAttention",), 1.0),
    Goal(
        "no slower than performer-pytorch",
        f"performer{TWO_SIDED}",
        ("performer-pytorch-two-sided",),
        1.0,
    ),
)
