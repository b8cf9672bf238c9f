"""
Loads the statements of ``sql/`` and ``cypher/`` by name.

Each file holds statements under headings of the form ``-- name --`` (``// name //`` in Cypher), each followed by a
comment that says what it is for. Files are read once; the result is immutable.

Values are always parameters. Only a *term* of a closed list (a label, a relationship type, a key) is inserted into a
text: templates mark its place ``«name»``, and :meth:`Statement.bind` refuses any term outside the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import LiteralString

_HEADING = re.compile(r"^(?:--|//)[ \t]+([a-z][a-z0-9_]*)[ \t]+(?:--|//)[ \t]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"«([a-z_]+)»")
_GIVEN = re.compile(r"\$given\.([a-z_]+)")
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_TERM = re.compile(r"^[A-Za-z][A-Za-z0-9_]*$")


@dataclass(frozen=True, slots=True)
class Statement:
    """
    One named statement.

    Attributes:
        name: its heading.
        text: the statement with its comment, as it goes to the server.
        path: of its file.
    """

    name: str
    text: LiteralString
    path: Path

    @property
    def given(self) -> frozenset[str]:
        """Names that it takes from the map ``$given``; Cypher only."""
        return frozenset(_GIVEN.findall(_COMMENT.sub("", self.text)))

    @property
    def placeholders(self) -> frozenset[str]:
        """Names of the placeholders that :meth:`bind` fills."""
        return frozenset(_PLACEHOLDER.findall(self.text))

    def bind(self, allowed: frozenset[str], **terms: str) -> LiteralString:
        """
        Return the text with each placeholder filled by a term of a closed list.

        Args:
            allowed: the closed list.
            terms: placeholder → term.

        Raises:
            ValueError: a term is not in the list or is no identifier, or a placeholder is left open.
        """
        if set(terms) != self.placeholders:
            raise ValueError(f"{self.name} wants {sorted(self.placeholders)}, got {sorted(terms)}.")
        for term in terms.values():
            if term not in allowed or not _TERM.match(term):
                raise ValueError(f"{term!r} is not a term that {self.name} may carry.")
        return _PLACEHOLDER.sub(lambda hole: terms[hole[1]], self.text)


@cache
def root_of(package: str, folder: str) -> Path:
    """
    Return the folder that holds statements: inside *package* when installed, beside it in a checkout.

    Raises:
        FileNotFoundError: neither exists: the installation is broken.
    """
    top = Path(__file__).resolve().parent.parent
    for candidate in (top / package / folder, top / folder):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"The folder {folder!r} of the package {package!r} is missing from this installation.")


def parse(text: str, path: Path) -> dict[str, Statement]:
    """Return the statements of one file by name."""
    found: dict[str, Statement] = {}
    headings = list(_HEADING.finditer(text))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        body = text[heading.end() : following.start() if following else len(text)].strip()
        name = heading[1]
        if not body or name in found:
            raise ValueError(f"{path.name}: {name} is empty or stands there twice.")
        found[name] = Statement(name, body, path)
    return found


@cache
def load(folder: Path, suffix: str) -> Mapping[str, Statement]:
    """
    Return every statement below *folder* by name.

    Raises:
        ValueError: a name is used in two files, or a statement is empty.
    """
    found: dict[str, Statement] = {}
    for path in sorted(folder.rglob(f"*{suffix}")):
        for name, statement in parse(path.read_text(encoding="utf-8"), path).items():
            if name in found:
                raise ValueError(f"{name} stands in {found[name].path.name} and in {path.name}.")
            found[name] = statement
    return MappingProxyType(found)


@cache
def sql(name: str) -> LiteralString:
    """Return the text of the named SQL statement."""
    return load(root_of("journal", "sql") / "queries", ".sql")[name].text


@cache
def cypher(name: str) -> Statement:
    """Return the named Cypher statement."""
    return load(root_of("kg", "cypher") / "queries", ".cypher")[name]


def names(statements: Iterable[Statement]) -> list[str]:
    """Return the names of *statements*, sorted."""
    return sorted(statement.name for statement in statements)
