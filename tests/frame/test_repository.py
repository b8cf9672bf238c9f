"""The rules that every file of the repository keeps."""

from __future__ import annotations

import ast
import re
import stat
from collections.abc import Iterator
from pathlib import Path

LONGEST_FILE = 600
LONGEST_FUNCTION = 60

CODE = frozenset({".py", ".sql", ".cypher", ".lua", ".sh"})
NOT_OURS = frozenset({"LICENSE"})

# In pieces, so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile(
    "(?<![A-Za-z0-9_.<>}-])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "home" + "/[a-z]"]) + r")(?:/|\b)"
)
REGISTRIES = re.compile(
    "|".join(["py" + "pi\\.org", "python" + "hosted", "maven" + "\\.org", "apache" + "\\.org/maven", "npm" + "js"])
)
TICKETS = re.compile(r"\b(?:issue|ticket)s?\s*#?\d+\b|(?<![\w&/])#\d{1,4}\b(?![\w-])", re.IGNORECASE)


def _texts(root: Path, tracked: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    for path in tracked:
        if path.name in NOT_OURS or path.suffix in {".gz", ".png"}:
            continue
        yield path, (root / path).read_text(encoding="utf-8")


def test_no_file_of_code_is_too_long(root: Path, tracked: tuple[Path, ...]) -> None:
    """A file past the limit is two things."""
    lengths = {
        str(path): len((root / path).read_text(encoding="utf-8").splitlines())
        for path in tracked
        if path.suffix in CODE
    }

    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_function_is_too_long(root: Path, python_files: tuple[Path, ...]) -> None:
    """Counted from its name to its last line, the docstring left out: explaining more is never a fault."""
    long = []
    for path in python_files:
        for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                docstring = ast.get_docstring(node, clean=False) is not None
                docstring_lines = first.end_lineno - first.lineno + 1 if docstring and first.end_lineno else 0
                length = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines
                if length > LONGEST_FUNCTION:
                    long.append(f"{path}:{node.lineno} {node.name} {length}")

    assert long == []


def test_the_repository_speaks_of_the_product_alone(root: Path, tracked: tuple[Path, ...]) -> None:
    """No path of somebody's machine, no address of a registry, no number of a ticket."""
    found = [
        f"{path}:{number}: {hit[0]}"
        for path, text in _texts(root, tracked)
        if path.suffix != ".lock"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern in (MACHINE_PATHS, REGISTRIES, TICKETS)
        if (hit := pattern.search(line))
    ]

    assert found == []


def test_text_files_end_with_one_newline_and_carry_no_stray_spaces(root: Path, tracked: tuple[Path, ...]) -> None:
    """What an editor would change on saving is changed before it is committed."""
    untidy = [
        str(path)
        for path, text in _texts(root, tracked)
        if path.suffix in CODE | {".md", ".toml", ".yaml", ".txt"}
        and text
        and (
            not text.endswith("\n")
            or text.endswith("\n\n")
            or re.search(r"[ \t]+$", text, re.MULTILINE)
            or "\r" in text
        )
    ]

    assert untidy == []


def test_scripts_can_be_run(root: Path, tracked: tuple[Path, ...]) -> None:
    """A file that names its interpreter is executable, and only such a file."""
    wrong = [
        str(path)
        for path in tracked
        if (root / path).read_bytes().startswith(b"#!") != bool((root / path).stat().st_mode & stat.S_IXUSR)
    ]

    assert wrong == []


def test_no_test_steps_aside(root: Path, python_files: tuple[Path, ...]) -> None:
    """A server that is missing is a failure, and what is known to fail is mended, not marked."""
    wrong = [
        f"{path}:{node.lineno}: {name}"
        for path in python_files
        if path.parts[0] == "tests"
        for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and (name := ast.unparse(node)) in {"pytest.skip", "pytest.mark.skip", "pytest.mark.xfail", "pytest.xfail"}
    ]

    assert wrong == []


def test_links_between_pages_lead_somewhere(root: Path, tracked: tuple[Path, ...]) -> None:
    """The documentation's are also checked when it is built; these are all pages, as one reads them in a checkout."""
    broken = []
    for path, text in _texts(root, tracked):
        if path.suffix != ".md":
            continue
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose):
            place, _, _ = target.partition("#")
            if place and "://" not in place and not place.startswith("mailto:"):
                aim = (root / path).parent / place
                if not aim.exists() and not aim.with_suffix(".md").exists():
                    broken.append(f"{path}: {target}")

    assert broken == []
