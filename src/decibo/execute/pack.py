"""What a run's host remembers, as JSON: numbers and words as they are, rows of agents by their place in a list."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from decibo.automatic.controller import Kept
from decibo.automatic.curvature import Curvature
from decibo.automatic.monitor import Looks

MEMORY = (Curvature, Kept, Looks)  # classes whose objects are kept, field by field


def pack(value: Any, arrays: list[Any], like: Any) -> Any:
    """JSON for `value`. Arrays on devices are rows of agents and are appended to `arrays`; `like` is a state."""
    inside = lambda each: pack(each, arrays, like)
    if isinstance(value, jax.Array):
        arrays.append(value)
        return {"is": "rows", "at": len(arrays) - 1}
    if isinstance(value, tuple) and jax.tree.structure(value) == jax.tree.structure(like):
        return {"is": "state", "of": [inside(leaf) for leaf in jax.tree.leaves(value)]}
    if type(value) in MEMORY:
        parts: Any = vars(value) if isinstance(value, Looks) else value._asdict()  # type: ignore[attr-defined]
        return {
            "is": "object",
            "class": type(value).__name__,
            "of": {name: inside(part) for name, part in parts.items()},
        }
    if isinstance(value, dict):
        return {"is": "dict", "of": {key: inside(each) for key, each in value.items()}}
    if isinstance(value, list | tuple):
        return {"is": type(value).__name__, "of": [inside(each) for each in value]}
    if isinstance(value, np.ndarray):
        return {"is": "array", "type": str(value.dtype), "shape": value.shape, "of": value.ravel().tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} cannot be kept in a checkpoint")


def unpack(value: Any, arrays: list[Any], like: Any) -> Any:
    """The value that `pack` was given. Only classes in MEMORY are ever made."""
    inside = lambda each: unpack(each, arrays, like)
    if not isinstance(value, dict):
        return value
    kind = value["is"]
    if kind == "rows":
        return arrays[value["at"]]
    if kind == "state":
        return jax.tree.unflatten(jax.tree.structure(like), [inside(each) for each in value["of"]])
    if kind == "object":
        return _made(value["class"], {name: inside(part) for name, part in value["of"].items()})
    if kind == "dict":
        return {key: inside(each) for key, each in value["of"].items()}
    if kind == "array":
        return np.array(value["of"], value["type"]).reshape(value["shape"])
    items = [inside(each) for each in value["of"]]
    return items if kind == "list" else tuple(items)


def _made(name: str, parts: dict[str, Any]) -> Any:
    known = {each.__name__: each for each in MEMORY}
    if issubclass(known[name], tuple):
        return known[name](**parts)
    made = object.__new__(known[name])
    vars(made).update(parts)
    return made
