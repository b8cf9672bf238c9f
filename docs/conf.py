"""How the documentation is built: Sphinx with MyST; every warning is an error, a broken link among them."""

from __future__ import annotations

import html
import inspect
import pkgutil
import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sphinx.errors import ExtensionError
from sphinx.ext.napoleon.docstring import GoogleDocstring

# Before any page is read: autodoc rewrites the annotations of pydantic's base class, and LangChain can define no model
# after that.
import imem.langgraph  # noqa: F401 - see above

project = "Institutional Memory"
author = "The Institutional Memory contributors"
copyright = f"2026, {author}. Apache License 2.0"  # noqa: A001 - the name that Sphinx reads
release = installed_version("institutional-memory")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_use_ivar = True
# Names of other projects have no page here; ours must resolve.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(?!(?:imem|gates|debates|patterns|postmortem|recall|credibility|sync|checkpoints|cache|kg|journal)\.).*",
    )
]

# Two things of ours may have one name, and an annotation that only type checkers evaluate does not say which.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"Institutional Memory {release}"
html_show_sphinx = False
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True


def show_unlinked(_app: Any, _env: Any, node: Any, shown: Any) -> Any:
    """Show the name of an internal part that has no page as text; a name that does not exist stays an error."""
    try:
        pkgutil.resolve_name(node.get("reftarget", ""))
    except (ImportError, AttributeError, ValueError):
        return None
    return shown


def _whole(docstring: Any) -> list[str]:
    """
    Return the text of an attribute or property as it stands.

    Napoleon takes what stands before its first colon for the type, and cuts it off; here types are annotations.
    """
    lines = docstring._consume_to_end()  # noqa: SLF001 - there is no public way
    whole = GoogleDocstring(lines, docstring._config, docstring._app, "method", docstring._name)  # noqa: SLF001 - as above
    return list(whole.lines())


def check_docstring(_app: Any, what: str, name: str, shown: Any, _options: Any, lines: list[str]) -> None:
    """Fail the build where the beginning of a property's docstring is lost on its way into a page."""
    begins = (inspect.getdoc(shown) or "").partition("\n\n")[0].split()
    if what == "property" and "\n".join(lines).split()[: len(begins)] != begins:
        raise ExtensionError(f"Of the docstring of {name} is shown only: {' '.join(lines)}")


SHOWN = {
    "reference/python-api.html": ("limits: Limits | None = None, as_of: datetime | None = ...", f"© {copyright}"),
    "reference/graph.html": ("company:<ticker>",),
}
"""Page → texts that it must show: types, names in angle brackets, the copyright."""


def check_pages(app: Any, error: Exception | None) -> None:
    """Fail the build where a page does not show what it should."""
    if error is not None or app.builder.name != "html":
        return
    for page, wanted in SHOWN.items():
        text = html.unescape(re.sub(r"<[^>]*>", "", (Path(app.outdir) / page).read_text(encoding="utf-8")))
        missing = [one for one in wanted if "".join(one.split()) not in "".join(text.split())]
        if missing:
            raise ExtensionError(f"{page} does not show {', '.join(missing)}.")


def setup(app: Any) -> None:
    """Connect what checks the pages."""
    GoogleDocstring._parse_attribute_docstring = _whole  # noqa: SLF001 - as above
    app.connect("missing-reference", show_unlinked)
    app.connect("autodoc-process-docstring", check_docstring, priority=900)
    app.connect("build-finished", check_pages)
