"""
The Lua scripts, read from ``cache/lua`` by the statement loader and assembled once.

A script begins with ``#!lua`` and its flags, which servers from 7.0 on read. Its second line may name parts that are
prepended (``-- with: common, leaves``); a part is a statement without the first line. Text is never formatted into a
script: whatever varies is a key or an argument.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from imem.journal.statements import load, root_of

_SHEBANG: Final = re.compile(r"#!lua(?: flags=([a-z,-]+))?")
_WITH: Final = re.compile(r"-- with: ([a-z_, ]+)")


@dataclass(frozen=True, slots=True)
class Script:
    """
    One script as it is sent to a server.

    Attributes:
        name: its heading.
        text: all of it.
        sha1: for ``EVALSHA``.
        writes: whether it may write: then a lost reply leaves the outcome unknown.
    """

    name: str
    text: bytes
    sha1: bytes
    writes: bool


@cache
def scripts() -> Mapping[str, Script]:
    """
    Return every script by name.

    Raises:
        ValueError: a script names a part that does not exist.
    """
    texts = {name: statement.text for name, statement in load(root_of("cache", "lua"), ".lua").items()}
    return MappingProxyType({name: _made(name, texts) for name, text in texts.items() if _SHEBANG.match(text)})


def script(name: str) -> Script:
    """Return the script of that name."""
    return scripts()[name]


def _made(name: str, texts: Mapping[str, str]) -> Script:
    shebang, _, body = texts[name].partition("\n")
    flags = _SHEBANG.fullmatch(shebang)
    if flags is None:
        raise ValueError(f"{name}: {shebang!r} is no first line of a script.")
    wanted = _WITH.match(body)
    parts = [part.strip() for part in wanted[1].split(",")] if wanted else []
    missing = [part for part in parts if part not in texts]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}, which no file defines.")
    text = "\n".join([shebang, *(texts[part] for part in parts), body, ""]).encode()
    # The protocol names scripts by their SHA-1; it protects nothing.
    sha1 = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode("ascii")
    return Script(name, text, sha1, "no-writes" not in (flags[1] or "").split(","))
