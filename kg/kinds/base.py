"""
What kinds and groups have in common.

A kind is written as one frozen model: the fields of its core stand in it flat, and each property group is a class
inside it with an attribute of the same name in small letters, None when it is not stated::

    Company(ticker="MU", profile=Company.Profile(name="Micron Technology"))

The class body is the whole definition; :mod:`kg.catalog` reads the closed lists from it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value that cannot change and has no field but its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Group(Frozen):
    """
    Properties that change together and are always written whole.

    Class keywords: ``governed`` names the only subsystem that writes the group; ``derived`` marks values computed
    here, outside history and hash.
    """

    GOVERNED: ClassVar[str | None] = None
    DERIVED: ClassVar[bool] = False

    def __init_subclass__(cls, *, governed: str | None = None, derived: bool = False, **kwargs: Any) -> None:
        """Keep the class keywords."""
        super().__init_subclass__(**kwargs)
        cls.GOVERNED = governed
        cls.DERIVED = derived


class Kind(Frozen):
    """
    A kind of node: its core flat, its groups as attributes.

    Class keywords: ``key`` names the property that identifies a node; ``labels`` are the labels beside the class's
    name; ``labels_when`` gives a label that a node bears exactly while a property of a group has a value;
    ``governed`` names the only subsystem that writes the kind.

    Raises:
        pydantic.ValidationError: a value is missing, unknown or outside its bounds; one error per field.
    """

    KEY: ClassVar[str]
    LABELS: ClassVar[tuple[str, ...]] = ()
    LABELS_WHEN: ClassVar[Mapping[str, tuple[str, str, str]]] = MappingProxyType({})
    GOVERNED: ClassVar[str | None] = None

    def __init_subclass__(
        cls,
        *,
        key: str = "id",
        labels: tuple[str, ...] = (),
        labels_when: Mapping[str, tuple[str, str, str]] | None = None,
        governed: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the class keywords."""
        super().__init_subclass__(**kwargs)
        cls.KEY = key
        cls.LABELS = (cls.__name__, *labels)
        cls.LABELS_WHEN = MappingProxyType(dict(labels_when or {}))
        cls.GOVERNED = governed

    @property
    def ref(self) -> tuple[str, str]:
        """Label and key: how links name this node."""
        key: str = getattr(self, self.KEY)
        return type(self).__name__, key
