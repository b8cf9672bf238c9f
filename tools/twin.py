"""
Writes ``imem/blocking/everyday.py`` and its neighbours: each operation of ``Memory``, without ``await``.

usage: tools/twin.py [--check]

With ``--check`` it writes nothing, and exits with 1 if a file is not what the operations say.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from imem.memory import Memory
from imem.services.registry import facets, operations

FOLDER = Path(__file__).parent.parent / "imem" / "blocking"
HEAVY = ("memories", "trades", "reflections")
"""Facets that a program which does not use them shall not import."""

NOTICE = "Written by `make reference` from the operations of ``Memory``; changed there alone."


def main() -> int:
    """Write the files, or compare them."""
    wanted = dict(files())
    if "--check" not in sys.argv[1:]:
        for path, text in wanted.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.name} is not what the operations say: run `make reference`.", file=sys.stderr)
    return bool(stale)


def files() -> Iterator[tuple[Path, str]]:
    """Return each file with its text."""
    light = [name for name in facets() if name not in HEAVY]
    yield FOLDER / "everyday.py", everyday(light)
    for name in HEAVY:
        yield FOLDER / f"{name}.py", heavy(name)


def everyday(light: list[str]) -> str:
    """Return the file of the operations of ``Memory`` itself, and of its light facets."""
    kinds = {name: facets()[name] for name in light}
    modules: dict[str, list[str]] = {}
    for kind in kinds.values():
        modules.setdefault(kind.__module__, []).append(kind.__name__)
    lines = [f'"""\nThe operations of ``Memory`` and of its facets, without ``await``.\n\n{NOTICE}\n"""\n']
    lines += ["from __future__ import annotations\n", "from typing import TYPE_CHECKING\n"]
    lines += ["from imem.blocking.twin import Twin, blocking", "from imem.memory import Memory"]
    lines += [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(modules.items())]
    lines += ["", "if TYPE_CHECKING:"]
    lines += [f"    from imem.blocking.{name} import {twin(facets()[name])}" for name in sorted(HEAVY)]
    for name, kind in kinds.items():
        lines += ["", "", *class_of(name, kind)]
    lines += ["", "", "class EverydayTwin(Twin[Memory]):"]
    lines += ['    """The operations of ``Memory``; for their meaning see :class:`imem.memory.Memory`."""', ""]
    lines += [f"    {method} = blocking(Memory.{method})" for method in own_methods(Memory)]
    for name in facets():
        kind = facets()[name]
        lines += ["", "    @property", f"    def {name}(self) -> {twin(kind)}:"]
        lines += [f'        """The facet; see :attr:`imem.memory.Memory.{name}`."""']
        if name in HEAVY:
            lines += [
                f"        from imem.blocking.{name} import {twin(kind)}  # noqa: PLC0415 - few programs need it",
                "",
            ]
        lines += [f"        return {twin(kind)}(self._caller, self._inner.{name})"]
    return "\n".join(lines) + "\n"


def heavy(name: str) -> str:
    """Return the file of one facet."""
    kind = facets()[name]
    lines = [
        f'"""\nThe facet ``memory.{name}``, without ``await``.\n\n{NOTICE}\n"""\n',
        "from __future__ import annotations\n",
    ]
    lines += ["from imem.blocking.twin import Twin, blocking", f"from {kind.__module__} import {kind.__name__}"]
    return "\n".join([*lines, "", "", *class_of(name, kind)]) + "\n"


def class_of(name: str, kind: type) -> list[str]:
    """Return the lines of the twin of a facet."""
    return [
        f"class {twin(kind)}(Twin[{kind.__name__}]):",
        f'    """The facet ``memory.{name}``; see :class:`~{kind.__module__}.{kind.__name__}`."""',
        "",
        *(f"    {method} = blocking({kind.__name__}.{method})" for method in own_methods(kind)),
    ]


def own_methods(kind: type) -> list[str]:
    """Return the names of the operations of a class, in the order of their declaration."""
    return [one.method.__name__ for one in operations() if issubclass(kind, one.kind) and (one.facet or kind is Memory)]


def twin(kind: type) -> str:
    """Return the name of the twin of a facet."""
    return f"Sync{kind.__name__.removesuffix('Facet')}"


if __name__ == "__main__":
    sys.exit(main())
