"""The settings as ``imem doctor --settings`` lists them."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from imem.journal.settings import PREFIX, Settings


def settings_table(settings: Settings) -> Table:
    """Return every setting with its value, passwords hidden, and what it is for."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("variable", "value", ""):
        rows.add_column(title, overflow="fold")
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        rows.add_row(PREFIX + name.upper(), "" if value is None else Text(str(value)), Text(field.description or ""))
    return rows
