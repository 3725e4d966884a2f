"""The valid name that comes nearest to what somebody wrote."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from decibo.errors import InputError

SAME = {
    "m": "agents",
    "n_agents": "agents",
    "nodes": "agents",
    "dataset": "data",
    "lambda": "lam",
    "iterations": "steps",
}
SHOWN = 12  # more names than this are not listed in a message


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is probably meant, or None."""
    words = list(known)
    if SAME.get(name) in words:
        return SAME[name]
    found = get_close_matches(name.lower().replace("-", "_"), words, n=1, cutoff=0.5)
    inside = [word for word in words if len(name) > 2 and name.lower() in word]
    return found[0] if found else inside[0] if inside else None


def unknown(what: str, name: str, kind: str, known: Iterable[str], look: str = "") -> InputError:
    """The refusal of a name: the nearest valid one, and the others where there are few or no place to look."""
    words, close = list(known), nearest(name, known)
    advice = f"Did you mean {close}?" if close else ""
    if len(words) <= SHOWN or not look:
        advice += f" Valid: {', '.join(words) or 'none'}."
    else:
        advice += f" `{look}` shows all {len(words)}."
    return InputError(what, f"there is no such {kind}", advice.strip())
