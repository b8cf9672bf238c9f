"""Models made of what the journal holds."""

from collections.abc import Mapping
from typing import Any

from imem.kg.kinds.catalog import KINDS
from imem.kg.model import Kind


def to_model(kind: str, core: Mapping[str, Any], groups: Mapping[str, Mapping[str, Any]] | None = None) -> Kind:
    """Return the model of a canonical core with its groups."""
    info = KINDS[kind]
    parts = {name: info.groups[name].model.model_validate(dict(group)) for name, group in (groups or {}).items()}
    return info.model.model_validate({**core, **parts})
