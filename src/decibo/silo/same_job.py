"""Whether a neighbour runs the same job, from what both sites say about it.

    (1)  the terms of the job must be equal, word by word
    (2)  so must the traced programs, where both sites trace with the same versions of decibo and
         JAX. If the number of samples differs, this site traces its own at the neighbour's shapes:
         what it would compute there is what the neighbour says that it computes
    (3)  between different versions programs cannot be compared: that two sites compute the same is
         then for somebody to know, and to say (`same_programs`)

A checksum says that a neighbour has the same functions, and nothing against one that lies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import jax

from decibo.errors import plain, short
from decibo.formatting import listed
from decibo.pytree import Tree
from decibo.run.fingerprint import PROGRAMS, software

DATA = "data"  # the part of the terms that says what a site's data looks like
PARTS = 100  # the most that terms may have
SHOWN = 5  # differences in words
LEAF = re.compile(r"([a-z]\w{0,19})\[((?:\d{1,10}(?:,\d{1,10})*)?)\]")
# what a neighbour says its data looks like -> the programs of this site for such data, or None
Programs = Callable[[str], Mapping[str, str] | None]


def difference(
    here: Mapping[str, str],
    words: Mapping[str, object],
    *,
    equal: bool,
    programs: Programs | None,
    same_programs: bool,
) -> tuple[str, str]:
    """Why a neighbour does not run the same job, or ""; and what to note about it otherwise.

    here            the terms of this site
    words           those that the neighbour has sent
    equal           whether the checksums of the jobs are
    same_programs   whether somebody knows that other versions compute the same
    """
    if len(words) > PARTS:
        return f"runs another job (its description has {len(words)} parts)", ""
    there = {plain(name): plain(value) for name, value in words.items()}
    versions = [name for name in software() if here.get(name) != there.get(name)]
    own: Mapping[str, str] = here
    if DATA in here and here[DATA] != there.get(DATA) and programs is not None:
        found = programs(there.get(DATA, ""))
        own = here if found is None else {**here, **found, DATA: there[DATA]}  # (2)
    parts = [name for name in dict.fromkeys([*own, *there]) if own.get(name) != there.get(name)]
    other = [name for name in parts if name not in (*PROGRAMS, *software())]
    traced = [name for name in PROGRAMS if name in parts]
    if other or not equal:  # (1)
        parts = [
            f"{name}: {short(there.get(name), 200)} there, {short(here.get(name), 200)} here"
            for name in other[:SHOWN]
        ]
        more = [f"and {len(other) - SHOWN} more"] if len(other) > SHOWN else []
        parts = parts or ["its summary is the same, but not its checksum"]
        return f"runs another job ({'; '.join(parts + more)})", ""
    if {"outer", "inner", "sample"} & set(traced):
        traced = [name for name in traced if name != "step"]  # it follows from the others
    if traced and not versions:
        which = f"{listed(traced)}: {'other functions' if traced[1:] else 'another function'}"
        return f"runs another job ({which} there than here)", ""
    if not versions:
        return "", ""
    both = "; ".join(f"{name}: {there.get(name)} there, {here.get(name)} here" for name in versions)
    runs = f"runs other software ({short(both, 200)})"
    # without functions of the owners, all that is computed is decibo's
    if not traced and (set(PROGRAMS) <= set(here) or "decibo" not in versions):
        return "", f"{runs}, and the same programs"
    if same_programs:
        return "", f"{runs}; its programs are believed"
    return f"{runs}, so that whether it computes the same cannot be found out", ""  # (3)


def described(data: Tree) -> str:
    """What the data of one agent looks like, in words."""
    return " ".join(
        f"{leaf.dtype.name}{list(leaf.shape)}".replace(" ", "") for leaf in jax.tree.leaves(data)
    )


def of_shapes(words: str, data: Tree) -> Tree | None:
    """The shapes that these words describe, if they are those of this data but for the number of
    samples."""
    leaves, structure = jax.tree.flatten(data)
    found = [LEAF.fullmatch(word) for word in words.split(" ")]
    if len(found) != len(leaves):
        return None
    there = []
    for one, leaf in zip(found, leaves, strict=True):
        shape = [int(size) for size in one[2].split(",") if size] if one else []
        if one is None or one[1] != leaf.dtype.name or shape[1:] != list(leaf.shape[1:]):
            return None
        if len(shape) != leaf.ndim:
            return None
        there.append(jax.ShapeDtypeStruct(shape, leaf.dtype))
    return jax.tree.unflatten(structure, there)
