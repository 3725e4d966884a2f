"""What a run's host remembers, as JSON: numbers and words as they are, states of agents by their place in a list."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from decibo.execute.curvature import Curvature


def pack(value: Any, arrays: list[Any], like: Any) -> Any:
    """JSON for `value`. The leaves of states shaped as `like`, rows of agents, are appended to `arrays`."""
    if isinstance(value, Curvature) or _is_state(value, like):
        leaves = jax.tree.leaves(value)
        arrays.extend(leaves)
        kind = "curvature" if isinstance(value, Curvature) else "state"
        return {"is": kind, "at": list(range(len(arrays) - len(leaves), len(arrays)))}
    if isinstance(value, dict):
        return {"is": "dict", "of": {key: pack(each, arrays, like) for key, each in value.items()}}
    if isinstance(value, list | tuple):
        return {"is": type(value).__name__, "of": [pack(each, arrays, like) for each in value]}
    if isinstance(value, np.ndarray | jax.Array):
        host = np.asarray(value)
        return {"is": "array", "type": str(host.dtype), "shape": host.shape, "of": host.ravel().tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} cannot be kept in a checkpoint")


def unpack(value: Any, arrays: list[Any], like: Any) -> Any:
    """The value that `pack` was given."""
    if not isinstance(value, dict):
        return value
    kind = value["is"]
    if kind == "state":
        return jax.tree.unflatten(jax.tree.structure(like), [arrays[at] for at in value["at"]])
    if kind == "curvature":
        return Curvature(*(arrays[at] for at in value["at"]))
    if kind == "dict":
        return {key: unpack(each, arrays, like) for key, each in value["of"].items()}
    if kind == "array":
        return np.array(value["of"], value["type"]).reshape(value["shape"])
    items = [unpack(each, arrays, like) for each in value["of"]]
    return items if kind == "list" else tuple(items)


def _is_state(value: Any, like: Any) -> bool:
    return isinstance(value, tuple) and jax.tree.structure(value) == jax.tree.structure(like)
