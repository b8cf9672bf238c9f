"""The documentation says what there is, and nothing that there is not."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import from_code
from imem.journal.settings import TEST_VARIABLES, Settings

COMMANDS = from_code.all_commands()


def _pages(root: Path) -> Iterator[Path]:
    yield root / "README.md"
    yield from (page for page in sorted((root / "docs").rglob("*.md")) if "_build" not in page.parts)


def _typed_commands(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (place, words after ``imem``) of every command line that a page tells its reader to type."""
    for page in _pages(root):
        text = page.read_text(encoding="utf-8")
        lines = re.findall(r"^\$ imem (.+)$", text, re.MULTILINE) + re.findall(r"`imem ([^`…]+)`", text)
        for line in lines:
            yield f"{page.relative_to(root)}: imem {line}", shlex.split(line, comments=True)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_explains_itself(name: str) -> None:
    """`--help` has a sentence for the command and for each of its arguments and options; so has the reference."""
    command = COMMANDS[name]

    assert (command.help or "").strip(), f"imem {name}"
    assert [item.name for item in command.params if not item.hidden and not (item.help or "").strip()] == []
    assert f"## imem {name}\n" in from_code.commands()


def test_pages_tell_readers_to_type_what_exists(root: Path) -> None:
    """Commands and options in the pages are the program's."""
    wrong = []
    for place, words in _typed_commands(root):
        path: list[str] = []
        while words and not words[0].startswith("-") and " ".join([*path, words[0]]) in COMMANDS:
            path.append(words.pop(0))
        known = {option for item in getattr(COMMANDS.get(" ".join(path)), "params", ()) for option in item.opts}
        known |= {"--help", "--version", "--install-completion", "--json", "--debug", "--raw"}
        unknown = [word for word in words if word.startswith("-") and word not in known]
        if (not path and words[:1] and not words[0].startswith("-")) or unknown:
            wrong.append(f"{place}: {unknown or words[0]}")

    assert wrong == []


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_setting_is_explained(name: str) -> None:
    """A setting without a meaning cannot be set with confidence."""
    assert Settings.model_fields[name].description
    assert f"`IMEM_{name.upper()}`" in from_code.settings()


def test_pages_name_settings_that_exist(root: Path) -> None:
    """A variable in a page is a setting or one of the test suite's."""
    known = Settings.variables() | TEST_VARIABLES
    pages = [*_pages(root), root / "CONTRIBUTING.md", root / "CHANGELOG.md", root / "compose" / "README.md"]
    named = {
        name for page in pages for name in re.findall(r"\bIMEM_[A-Z0-9_]*[A-Z0-9]\b", page.read_text(encoding="utf-8"))
    }

    assert named - known == set()


@pytest.mark.parametrize("page", from_code.pages(), ids=lambda page: str(page.relative_to(from_code.DOCS)))
def test_what_a_page_has_from_the_code_is_what_the_code_says(page: Path) -> None:
    """Settings, commands, errors and rights read the same in the repository; `make reference` writes them."""
    text = page.read_text(encoding="utf-8")
    assert text == from_code.with_parts(text), f"{page.name} is not what the code says: run `make reference`"


def test_each_part_stands_in_a_page() -> None:
    """Once, and each page of the reference that promises one has it."""
    named = [
        name
        for page in from_code.pages()
        for name in re.findall(r"<!-- from the code: (\w+) -->", page.read_text(encoding="utf-8"))
    ]
    assert sorted(named) == sorted(from_code.PARTS)


@pytest.mark.parametrize("name", sorted(from_code.PARTS))
def test_generated_part_has_content(name: str) -> None:
    """Each part of the reference that comes from the code has something to say."""
    assert len(from_code.PARTS[name]()) > 200


@pytest.mark.parametrize("name", sorted(set(from_code.PARTS) - {"queries"}))
def test_angle_brackets_are_shown(name: str) -> None:
    """Outside of code, ``<ticker>`` would be an element of HTML that no browser knows, and nothing would be seen."""
    without_blocks = re.sub(r"^```.*?^```", "", from_code.PARTS[name](), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"<\w+>?", re.sub(r"`+[^`]*`+", "", without_blocks)) == []


def test_text_in_angle_brackets_is_kept_and_code_left_alone() -> None:
    """As Markdown shows it."""
    assert from_code._text("Ask for <ticker>, such as `<home>/x`.") == "Ask for &lt;ticker>, such as `<home>/x`."


def test_decisions_name_what_was_refused(root: Path) -> None:
    """A decision has a question, an answer, consequences, and at least two alternatives with the reason against."""
    pages = sorted((root / "docs" / "decisions").glob("0*.md"))

    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Question", "Decision", "What follows", "Refused"], (
            page.name
        )
        assert len(re.findall(r"^- \*\*", text[text.index("## Refused") :], re.MULTILINE)) >= 2, page.name


def test_changelog_knows_the_present_version(root: Path) -> None:
    """What is built has a heading of its own or stands under Unreleased."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    headings = re.findall(r"^## \[(.+?)\]", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert {"Unreleased", version} & set(headings)
