"""How the documentation is built: Sphinx with MyST; every warning is an error, a broken link among them."""

from __future__ import annotations

import pkgutil
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from docs import from_code

project = "Institutional Memory"
author = "The Institutional Memory contributors"
release = installed_version("institutional-memory")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "reference/generated"]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_use_ivar = True
# Names of other projects have no page here; ours must resolve.
nitpick_ignore_regex = [(r"py:.*", r"(?!(?:imem|recall|credibility|sync|checkpoints|cache|kg|journal)\.).*")]

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


def setup(app: Any) -> None:
    """Have the generated parts of the reference written before the pages are read."""
    app.connect("builder-inited", from_code.write)
    app.connect("missing-reference", show_unlinked)
