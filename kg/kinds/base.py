"""
Base classes of kinds and groups.

A kind is one frozen model: it has the fields of its core, and each property group is a class
inside it with an attribute of the same name in small letters, None when absent::

    Company(ticker="MU", profile=Company.Profile(name="Micron Technology"))

The class body is the whole definition; :mod:`imem.kg.kinds.catalog` reads the closed lists from it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from imem.kg.load_format.refusals import refusal

TagName = Literal["subject", "series", "agent", "patterns", "lessons"]


class Tag(NamedTuple):
    """
    A dependency tag: a write invalidates the cached results that have it.

    Attributes:
        name: of the tag.
        field: field of the core whose value completes it, as in ``subject:company:MU``; a write in which it is absent
            invalidates nothing by this tag.
    """

    name: TagName
    field: str | None = None


class StrictModel(BaseModel):
    """
    An immutable value without unknown fields.

    Raises:
        BadInput: a value is missing, unknown or outside its bounds; names the first such field. Its cause is pydantic's
            error, which names all of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, /, **data: Any) -> None:
        """Validate *data* as pydantic does, with errors of the product's own tree."""
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise refusal(error, "", type(self).__name__, type(self).model_fields) from error

    # Nested validation, as of a parsed line, bypasses this method, as it bypasses pydantic's own.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class Group(StrictModel):
    """
    Properties that change together and are always written whole.

    Class keywords: ``governed`` names the only subsystem that writes the group; ``derived`` marks values computed
    here, outside history and hash; ``unowned`` those that decide for others, which no agent may append.
    """

    GOVERNED: ClassVar[str | None] = None
    DERIVED: ClassVar[bool] = False
    UNOWNED: ClassVar[bool] = False

    def __init_subclass__(
        cls, *, governed: str | None = None, derived: bool = False, unowned: bool = False, **kwargs: Any
    ) -> None:
        """Store the class keywords."""
        super().__init_subclass__(**kwargs)
        cls.GOVERNED = governed
        cls.DERIVED = derived
        cls.UNOWNED = unowned


class Kind(StrictModel):
    """
    A kind of node: its core flat, its groups as attributes.

    Class keywords; a kind cannot be defined without ``tags``, which may be empty:

    - ``key``: the property that identifies a node;
    - ``labels``: labels beside the class's name;
    - ``labels_when``: a label that a node has exactly while a property of a group has a value;
    - ``governed``: the only subsystem that writes the kind;
    - ``owner``: the field of the core with its owner or owners: any of them may add to it, and only a sole owner may
      record it; without it, the actor that records it owns it;
    - ``unowned``: whether it decides for others, so that no agent may append it;
    - ``tags``: the dependency tags of its records, beside that of the record itself;
    - ``occurred``: the field of the core with the default ``occurred_at``, which may not lie in the future;
    - ``fixed``: fields that a correction may not change, since scores or histories hang on them;
    - ``settles``: whether a record says what its metric turned out to be by its target; one of another kind claims it;
    - ``reference``: whether scores are computed by it, so that it takes the import right or a person to record it.

    Raises:
        BadInput: a value is missing, unknown or outside its bounds; names the first such field.
    """

    KEY: ClassVar[str]
    TAGS: ClassVar[tuple[Tag, ...]]
    OCCURRED: ClassVar[str | None] = None
    FIXED: ClassVar[tuple[str, ...]] = ()
    SETTLES: ClassVar[bool] = False
    REFERENCE: ClassVar[bool] = False
    OWNER: ClassVar[str | None] = None
    UNOWNED: ClassVar[bool] = False
    LABELS: ClassVar[tuple[str, ...]] = ()
    LABELS_WHEN: ClassVar[Mapping[str, tuple[str, str, str]]] = MappingProxyType({})
    GOVERNED: ClassVar[str | None] = None

    def __init_subclass__(
        cls,
        *,
        tags: tuple[Tag, ...],
        key: str = "id",
        labels: tuple[str, ...] = (),
        labels_when: Mapping[str, tuple[str, str, str]] | None = None,
        governed: str | None = None,
        occurred: str | None = None,
        fixed: tuple[str, ...] = (),
        settles: bool = False,
        reference: bool = False,
        owner: str | None = None,
        unowned: bool = False,
        **kwargs: Any,
    ) -> None:
        """Store the class keywords."""
        super().__init_subclass__(**kwargs)
        cls.KEY = key
        cls.TAGS = tags
        cls.OCCURRED = occurred
        cls.FIXED = fixed
        cls.SETTLES = settles
        cls.REFERENCE = reference
        cls.OWNER = owner
        cls.UNOWNED = unowned
        cls.LABELS = (cls.__name__, *labels)
        cls.LABELS_WHEN = MappingProxyType(dict(labels_when or {}))
        cls.GOVERNED = governed

    @property
    def ref(self) -> tuple[str, str]:
        """Label and key, by which links name this node."""
        key: str = getattr(self, self.KEY)
        return type(self).__name__, key
