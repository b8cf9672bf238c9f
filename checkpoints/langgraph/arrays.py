"""
Arrays and numbers of numpy as values of msgpack, and back.

Nothing here imports numpy before a value or a row needs it.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Final

_KINDS: Final = frozenset("?biufcSUmMV")
"""Kinds of elements that are their bytes; those of records (V) as far as their fields are such."""


def is_array(value: object) -> bool:
    """Whether it is an array, and of no subclass: a mask or a matrix is more than its elements."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def is_number(value: object) -> bool:
    """Whether it is a number, text or moment of numpy's own."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and type(value) is value.dtype.type


def description_of(dtype: Any) -> Any:
    """
    Return a type of elements in numpy's own notation; None where that does not say all of it.

    Its texts, numbers, lists and tuples are what the format of ``.npy`` files has.
    """
    from numpy.lib import format as notation  # noqa: PLC0415 - numpy is loaded, as there is an array

    if dtype.kind not in _KINDS or dtype.hasobject or _has_notes(dtype):
        return None
    try:
        found = notation.dtype_to_descr(dtype)
        back = notation.descr_to_dtype(found)
    except (TypeError, ValueError):
        return None
    return found if back == dtype and back.type is dtype.type else None


def _has_notes(dtype: Any) -> bool:
    return bool(dtype.metadata) or any(_has_notes(field[0]) for field in (dtype.fields or {}).values())


def order_of(array: Any) -> str:
    """Return the order of elements in which an array is stored: ``F`` for columns, ``C`` for rows."""
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def array_of(description: Any, shape: list[int], order: str, data: bytes) -> Any:
    """
    Return an array, which may be written to, of its bytes.

    Raises:
        ValueError, TypeError: the parts do not fit together.
    """
    import numpy as np  # noqa: PLC0415 - only where there is an array

    dtype = _dtype(description)
    # Checked first: an array of any shape could be asked for with no bytes.
    if math.prod(shape) * dtype.itemsize != len(data) or min(shape, default=0) < 0:
        raise ValueError(f"an array of the shape {tuple(shape)} does not have {len(data)} bytes")
    if not data:
        # Not np.empty: it makes elements of one byte where the type has none.
        return np.ndarray(tuple(shape), dtype, order="F" if order == "F" else "C")
    return np.ndarray(tuple(shape), dtype, buffer=bytearray(data), order="F" if order == "F" else "C")


def objects_of(shape: list[int], order: str, items: list[Any]) -> Any:
    """
    Return an array of objects.

    Raises:
        ValueError: there are not as many as the shape has places.
    """
    import numpy as np  # noqa: PLC0415 - only where there is an array

    flat = np.empty(len(items), dtype=object)
    for number, item in enumerate(items):
        flat[number] = item
    return flat.reshape(tuple(shape), order="F" if order == "F" else "C")


def number_of(description: Any, data: bytes) -> Any:
    """
    Return a number of numpy's own.

    Raises:
        ValueError, TypeError: the parts do not fit together.
    """
    import numpy as np  # noqa: PLC0415 - only where there is a number

    dtype = _dtype(description)
    if dtype.itemsize != len(data):
        raise ValueError(f"a number of {dtype} does not have {len(data)} bytes")
    return np.ndarray((), dtype, buffer=bytearray(data))[()]


def text_of(text: str | bytes) -> Any:
    """Return a text or bytes of numpy's own."""
    import numpy as np  # noqa: PLC0415 - only where there is one

    return np.str_(text) if isinstance(text, str) else np.bytes_(text)


def _dtype(description: Any) -> Any:
    from numpy.lib import format as notation  # noqa: PLC0415 - only where there is an array

    dtype = notation.descr_to_dtype(description)
    if dtype.hasobject:
        raise ValueError("an array of objects has no bytes")
    return dtype
