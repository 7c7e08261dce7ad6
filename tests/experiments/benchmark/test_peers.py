"""The peers on torch compute what they are said to; skipped where the extra `peers` is not installed."""

import functools
import importlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attention
from attention.kernel import FLOOR
from attention.performer import random_directions
from experiments.benchmark import cells, inputs, jax_side, peers, torch_side

torch = pytest.importorskip("torch")

ON_TORCH = [name for name, peer in peers.PEERS.items() if peer.packages]
TOLERANCE = 1e-4


@pytest.fixture(params=ON_TORCH)
def name(request) -> str:
    for package in peers.PEERS[request.param].packages:
        pytest.importorskip(package.replace("-", "_"))
    if "flex" in request.param and not shutil.which("g++"):
        pytest.skip("FlexAttention compiles, and there is no compiler")
    return request.param


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(inputs, "SHAPE", {"batch": 1, "num_heads": 2, "head_dim": 8})


def test_what_is_said_to_be_the_same_agrees_and_the_rest_does_not(name):
    found = cells.difference(name, 384)
    same = not peers.PEERS[name].differs
    assert set(found) == {"forward"} if "flex" in name else {"forward", "gradient"}
    assert all((value <= TOLERANCE) == same for value in found.values()), found


def test_shapes_are_those_of_the_inputs_and_all_is_finite(name):
    outputs = torch_side.outputs(name, 256, "forward")
    if "flex" not in name:
        outputs += torch_side.outputs(name, 256, "gradient")
    for each in outputs:
        assert each.shape == (1, 256, 2, 8) and each.dtype == np.float32 and np.isfinite(each).all()


@pytest.mark.parametrize("name", ["torch.flex_attention"], indirect=True)
def test_flex_has_no_backward_and_that_is_its_outcome(name):
    parts = torch_side.measure_parts(name, 256)
    assert parts["forward"]["outcome"] == "measured"
    assert (
        parts["gradient"]["outcome"] == torch_side.NOT_SUPPORTED and "backward" in parts["gradient"]["reason"]
    )


@pytest.mark.parametrize("name", ["torch.flex_attention"], indirect=True)
@pytest.mark.parametrize("length", [128, 384, 1024])
def test_causal_blocks_are_those_that_torch_makes(name, length):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    made = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cpu")
    ours = peers._causal_blocks(length)
    assert ours.seq_lengths == made.seq_lengths and torch.equal(ours.to_dense(), made.to_dense())
    for part in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(ours, part), getattr(made, part)), part


def test_a_cell_of_torch_has_times_threads_and_measured_memory():
    parts = torch_side.measure_parts("torch.scaled_dot_product_attention", 256)
    for found in parts.values():
        assert (
            found["outcome"] == "measured" and found["seconds"]["n"] >= 3 and found["first_call_seconds"] > 0
        )
        assert "memory" not in found and set(found["resident"]) == {"bytes", "method"}


@pytest.mark.parametrize("name", ["reformer-pytorch"], indirect=True)
def test_reformer_is_our_lsh_where_one_round_of_two_buckets_sees_everything(name):
    length = 256
    arrays = inputs.fresh(length, "forward", 0)
    tensors = torch_side.drawn("reformer-pytorch", length, "forward", 0)
    with torch.no_grad():
        theirs = peers.reformer(length, n_hashes=1, bucket_size=length // 2)(*tensors)
    limit = attention.LSH(num_hashes=1, **attention.LSH().limit(length).hyperparameters)
    query, _, value = arrays
    ours = limit(query, None, value, attention.Mask(causal=True))
    np.testing.assert_allclose(theirs.numpy().swapaxes(1, 2), ours, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["reformer-pytorch"], indirect=True)
def test_reformer_lets_the_future_decide_which_earlier_tokens_meet(name):
    """Held with its rotations fixed, so that nothing but later tokens differs; `lsh` has no such row."""
    torch.manual_seed(0)
    call = peers.reformer(512)
    query, _, value = torch_side.drawn("reformer-pytorch", 512, "forward", 0)
    other = query.clone()
    other[:, :, 256:] = query[:, :, 256:].flip(2) * 2 + 1
    with torch.no_grad():
        rows = []
        for each in (query, other):
            torch.manual_seed(1)
            rows.append(call(each, each, value)[:, :, :256])
    assert (rows[0] - rows[1]).abs().max() > 1e-2
    ours = jax.jit(jax_side.attend("lsh"))
    swapped = [np.asarray(each.numpy().swapaxes(1, 2)) for each in (query, other, value)]
    one, two = (ours(each, each, swapped[2])[:, :256] for each in swapped[:2])
    np.testing.assert_allclose(one, two, atol=1e-5)


@pytest.mark.parametrize("name", ["nystrom-attention"], indirect=True)
def test_one_head_of_one_row_of_nystrom_attention_is_ours(name, monkeypatch):
    monkeypatch.setattr(inputs, "SHAPE", {"batch": 1, "num_heads": 1, "head_dim": 8})
    found = cells.difference(name, 384)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize("name", ["nystrom-attention"], indirect=True)
def test_rows_of_nystrom_attention_see_each_other(name, monkeypatch):
    monkeypatch.setattr(inputs, "SHAPE", {"batch": 2, "num_heads": 1, "head_dim": 8})
    rows, ours = [], []
    for factor in (1, 3):
        tensors = torch_side.drawn(name, 256, "forward", 0)
        for each in tensors[:2]:
            each[1] *= factor
        with torch.no_grad():
            rows.append(peers.nystrom(256)(*tensors)[0])
        ours.append(jax_side.attend("nystrom")(*(jnp.array(each.numpy()) for each in tensors))[0])
    assert (rows[0] - rows[1]).abs().max() > TOLERANCE
    np.testing.assert_array_equal(*ours)


PERFORMERS = ["performer-pytorch", "performer-pytorch-two-sided"]


@pytest.mark.parametrize("name", PERFORMERS, indirect=True)
@pytest.mark.parametrize("width", [8, 64])
def test_performer_pytorch_with_nothing_added_is_ours(name, width, monkeypatch):
    theirs = importlib.import_module("performer_pytorch.performer_pytorch")
    for kernel in ("softmax_kernel", "causal_linear_attention_noncuda"):
        monkeypatch.setattr(theirs, kernel, functools.partial(getattr(theirs, kernel), eps=0.0))
    monkeypatch.setattr(importlib.import_module("attention.performer"), "FLOOR", 0.0)
    monkeypatch.setattr(inputs, "SHAPE", {"batch": 1, "num_heads": 2, "head_dim": width})
    found = cells.difference(name, 384)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize("name", PERFORMERS[1:], indirect=True)
def test_what_performer_pytorch_adds_changes_much_and_what_ours_adds_little(name, monkeypatch):
    """The figures of its entry and of the docstring of `performer`."""
    monkeypatch.setattr(inputs, "SHAPE", {"batch": 1, "num_heads": 8, "head_dim": 64})
    assert cells.difference(name, 384)["forward"] > 1
    theirs = importlib.import_module("performer_pytorch.performer_pytorch")
    monkeypatch.setattr(theirs, "softmax_kernel", functools.partial(theirs.softmax_kernel, eps=0.0))
    assert cells.difference(name, 384)["forward"] < 1e-3


@pytest.mark.parametrize("name", PERFORMERS[:1], indirect=True)
def test_an_early_row_of_performer_pytorch_sees_how_great_a_later_key_is(name):
    tensors = torch_side.drawn(name, 256, "forward", 0)
    query, key, value = tensors
    other = key.clone()
    other[:, :, 255] = key[:, :, 0] * 4
    with torch.no_grad():
        one, two = (peers.performer(256)(query, each, value)[:, :, :128] for each in (key, other))
    assert (one - two).abs().max() > 1e-2
    ours = jax.jit(jax_side.attend("performer"))
    swapped = [np.asarray(each.numpy().swapaxes(1, 2)) for each in (query, key, other, value)]
    one, two = (ours(swapped[0], each, swapped[3])[:, :128] for each in swapped[1:3])
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", PERFORMERS[1:], indirect=True)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
def test_sums_of_performer_pytorch_are_those_of_our_linear_and_of_relu_features(name, causal):
    """Features are equal once the same is added to them: then its denominators, of features, agree too."""
    theirs = importlib.import_module("performer_pytorch.performer_pytorch")
    attend = theirs.causal_linear_attention_noncuda if causal else theirs.linear_attention
    relu, width = attention.make("performer", kind="relu"), inputs.SHAPE["head_dim"]
    matrix = torch.from_numpy(random_directions(relu.num_features, width, 0)).float()
    of_relu = functools.partial(theirs.generalized_kernel, projection_matrix=matrix, kernel_epsilon=FLOOR)
    arrays = inputs.fresh(256, "forward", 0)
    query, key, value = torch_side.drawn(name, 256, "forward", 0)
    for variant, features in (
        (attention.make("linear"), lambda x: torch.nn.functional.elu(x) + 1 + FLOOR),
        (relu, of_relu),
    ):
        expected = attend(features(query), features(key), value).numpy().swapaxes(1, 2)
        ours = variant(*arrays, attention.Mask(causal))
        np.testing.assert_allclose(ours, expected, atol=TOLERANCE)
