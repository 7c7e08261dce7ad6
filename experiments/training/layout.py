"""Where the arrays of a step lie: rows of a batch and its tokens are shared along the axes of a mesh."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from attention.sharded import DATA, SEQUENCE
from experiments.config.checks import UsageError
from experiments.fields import Config

AXES = (DATA, SEQUENCE)


def num_devices(config: Config) -> int:
    """Devices that the config's mesh asks for."""
    return config.mesh.data * config.mesh.sequence


def sharing(config: Config) -> int:
    """How many of them have one memory and one speed between them: a CPU is several devices in name only."""
    return num_devices(config) if jax.devices()[0].platform == "cpu" else 1


def mesh(config: Config, devices: Sequence[Any] | None = None) -> Mesh | None:
    """The config's mesh, over the first of `devices`, or those here; None for one device here.

    Raises UsageError if there are too few.
    """
    count = num_devices(config)
    if devices is None and count == 1:
        return None
    found = jax.devices() if devices is None else devices
    if len(found) < count:
        shape = f"config.mesh asks for {config.mesh.data} x {config.mesh.sequence} devices"
        raise UsageError(f"{shape}, but there are {len(found)}")
    return Mesh(np.array(found[:count]).reshape(config.mesh.data, config.mesh.sequence), AXES)


def of_batch(mesh: Mesh | None, batch: Any, leading: int = 0) -> Any:
    """Shapes of a batch, each with its sharding; `leading` axes before the batch's are not shared."""

    def place(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        assert mesh is not None
        axes = (*[None] * leading, *AXES)[: x.ndim]
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, P(*axes)))

    return batch if mesh is None else jax.tree.map(place, batch)


def everywhere(mesh: Mesh | None) -> NamedSharding | None:
    """The sharding of what every device has whole: parameters, optimizer state, metrics."""
    return None if mesh is None else NamedSharding(mesh, P())


def copied(mesh: Mesh | None, tree: Any) -> Any:
    """Shapes of arrays that every device has whole."""
    sharding = everywhere(mesh)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)
