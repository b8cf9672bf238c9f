"""Turns a validation error into one plain sentence about one field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError

from imem.journal.errors import BadInput
from imem.kg.kinds import fields
from imem.kg.kinds.fields import shown

_PATTERNS: Final = {
    fields.NO_NUL: "holds a NUL character.",
    fields.NAME: "holds a / or a NUL character, which a name may not.",
    fields.SUBJECT: "must be company:<ticker> or market:<market_id>.",
}

_SENTENCES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "missing": lambda _: "is required.",
    "string_type": lambda _: "must be a string.",
    "string_unicode": lambda _: "holds a lone surrogate, which is no character.",
    "string_too_short": lambda _: "must not be empty.",
    "string_too_long": lambda ctx: f"is longer than {ctx['max_length']:,} characters.",
    "string_pattern_mismatch": lambda ctx: _PATTERNS[ctx["pattern"]],
    "int_type": lambda _: "must be a whole number.",
    "float_type": lambda _: "must be a number.",
    "finite_number": lambda _: "must be a finite number.",
    "bool_type": lambda _: "must be true or false.",
    "enum": lambda ctx: f"must be {ctx['expected']}.",
    "tuple_type": lambda _: "must be a list.",
    "too_long": lambda ctx: f"has more than {ctx['max_length']} items.",
    "greater_than_equal": lambda ctx: _bound("at least", ctx["ge"]),
    "less_than_equal": lambda ctx: _bound("at most", ctx["le"]),
    "model_type": lambda _: "must be an object.",
    "model_attributes_type": lambda _: "must be an object.",
    "refused": lambda ctx: str(ctx["reason"]),
}


def _bound(side: str, limit: object) -> str:
    # Fractions are the only floats with bounds.
    return "must lie between 0 and 1." if isinstance(limit, float) else f"must be {side} {limit}."


def dotted(*parts: str | int) -> str:
    """Return the path of a field for a message; parts that are no plain names are quoted and cut."""
    return ".".join(
        str(part)
        if isinstance(part, int) or (part.replace(".", "_").isidentifier() and len(part) <= 60)
        else shown(part)
        for part in parts
        if part != ""
    )


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint at the nearest of the *known* names, or the empty string."""
    near = get_close_matches(name[:200], list(known), n=1)
    return f"Did you mean {near[0]}?" if near else ""


def refusal(error: ValidationError, prefix: str, owner: str, known: Iterable[str]) -> BadInput:
    """
    Return the first error of *error* as bad input.

    Args:
        error: raised by the model.
        prefix: path of what was validated, such as ``core``.
        owner: its name, such as ``Analysis``, for an unknown field.
        known: names of its fields, to suggest the nearest.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    ctx = first.get("ctx", {})
    path = dotted(prefix, *first["loc"], ctx.get("where", "") if first["type"] == "refused" else "")
    if first["type"] == "extra_forbidden":
        return unknown_field(path, str(first["loc"][-1]), owner, known)
    sentence = _SENTENCES.get(first["type"])
    return BadInput(path, sentence(ctx) if sentence else f"is refused: {first['msg'].lower()}.")


def unknown_field(path: str, name: str, owner: str, known: Iterable[str]) -> BadInput:
    """Return the refusal of a name that *owner* does not have."""
    return BadInput(path, f"is no field of {owner}.", mend=suggestion(name, known))
