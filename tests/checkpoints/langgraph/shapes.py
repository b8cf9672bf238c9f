"""Classes of a program's own, of the kinds that states are made of."""

from __future__ import annotations

import dataclasses
import enum
import functools
import random
import threading
from collections import Counter
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, computed_field

T = TypeVar("T")


@dataclasses.dataclass
class Late:
    """One with a field that the constructor does not take, and one that it computes."""

    a: int
    b: list[int] = dataclasses.field(init=False, default_factory=list)
    twice: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.a


@dataclasses.dataclass
class Versioned:
    """One with a default that its class has, and no object of its own."""

    steps: list[Any]
    version: int = dataclasses.field(init=False, default=1)


@dataclasses.dataclass(init=False)
class Bare:
    """One whose constructor leaves a default to the class."""

    name: str
    retries: int = 3
    notes: str | None = None

    def __init__(self, name: str) -> None:
        self.name = name


@dataclasses.dataclass(frozen=True)
class Frozen:
    """One with a tuple, and something that it makes when it is asked for."""

    steps: tuple[Any, ...] = ()
    held: Any = None

    @functools.cached_property
    def lock(self) -> Any:
        """Something that cannot be stored."""
        return threading.Lock()


@dataclasses.dataclass(slots=True)
class Slotted:
    """One without attributes."""

    x: Any
    y: Any = None


class Base:
    """A plain class with a slot."""

    __slots__ = ("__hidden",)

    def __init__(self, hidden: Any) -> None:
        self.__hidden = hidden

    def hidden(self) -> Any:
        """Return it."""
        return self.__hidden


class Grown(Base):
    """One that adds attributes."""

    def __init__(self, hidden: Any, seen: Any) -> None:
        super().__init__(hidden)
        self.seen = seen


class Model(BaseModel):
    """A model with a private attribute, and a field of any type."""

    name: str
    any: Any = None
    inner: Model | None = None
    _calls: int = PrivateAttr(default=0)


class Open(BaseModel):
    """A model that takes further fields."""

    model_config = ConfigDict(extra="allow")
    alias: int = Field(default=1, alias="as")


class Box(BaseModel, Generic[T]):
    """A generic model."""

    held: T


class Drawn(BaseModel):
    """A model with a field that it computes once, by chance."""

    name: str = "d"

    @computed_field  # type: ignore[prop-decorator] # as pydantic's documentation has it
    @functools.cached_property
    def number(self) -> float:
        """Another number for each model."""
        return random.random()


class Priced:
    """A plain class with a total of the time when it was asked for first."""

    def __init__(self, count: int) -> None:
        self.count = count

    @functools.cached_property
    def total(self) -> tuple[int]:
        """Ten for each."""
        return (10 * self.count,)


class Point(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any = 0


class Colour(enum.Enum):
    """Members of several types."""

    RED = "red"
    PAIR = (1, 2)
    LIST = 3


class Level(enum.IntEnum):
    """Numbers."""

    LOW = 1


class Word(enum.StrEnum):
    """Texts."""

    YES = "yes"


class Right(enum.Flag):
    """Flags."""

    READ = enum.auto()
    WRITE = enum.auto()


class Text(str):
    """A text with an attribute."""

    __slots__ = ("lang",)


class Number(int):
    """A number of its own."""


class Bag(list):  # type: ignore[type-arg] # as users write it
    """A list of its own."""


class Table(dict):  # type: ignore[type-arg] # as users write it
    """A mapping of its own."""


class Tally(Counter):  # type: ignore[type-arg] # as users write it
    """A counter of its own."""


class Outer:
    """Holds classes."""

    @dataclasses.dataclass
    class Inner:
        """A class inside a class."""

        x: Any

        class Kind(enum.Enum):
            """Deeper."""

            A = 1


class Shifting:
    """One that forgets what it held: its content is in no attribute."""

    def __init__(self) -> None:
        self.x = 1

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Broken(Exception):
    """An error: part of what it holds is out of reach."""


ALL: tuple[type, ...] = (
    Late, Frozen, Slotted, Base, Grown, Model, Open, Point, Colour, Level, Word, Right, Text, Number, Bag, Table, Tally,
    Outer.Inner, Outer.Inner.Kind, Broken, Drawn, Priced,
    Versioned, Bare,
)  # fmt: skip
