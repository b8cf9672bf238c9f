"""
Answers to what is no message of the protocol: its library drops that, and the client would wait for ever.

The id of a request is found wherever it can be known, also in a message that is too long to be read or that no parser
takes: among the members at its beginning, or at its end.
"""

from __future__ import annotations

import json
import re
from typing import Final

from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)

HEAD_BYTES: Final = 64 * 2**10
"""Bytes at the beginning of a message in which its id is looked for; characters, where the message was read."""

TAIL_BYTES: Final = 2**10
"""Bytes at its end, likewise."""

_STRING: Final = r'"(?:[^"\\]|\\.)*+"'
_TOKEN: Final = re.compile(rf'(?P<id>"id"\s*:\s*(?P<value>-?\d+|{_STRING})\s*[,}}])|{_STRING}|[\[{{]|[\]}}]', re.DOTALL)
_MEMBER: Final = rf"{_STRING}\s*:\s*(?:{_STRING}|[\w.+-]+)\s*"
_TAIL: Final = re.compile(rf"(?:[{{,]\s*(?:{_MEMBER},\s*)*+){_MEMBER}\}}\s*\Z", re.DOTALL)
_ID: Final = re.compile(rf'[{{,]\s*"id"\s*:\s*(-?\d+|{_STRING})\s*[,}}]')


def refusal_of(line: str) -> JSONRPCError | None:
    """Return the answer to a line that is no message of the protocol; None where it is one."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _refused(_id_of(line[:HEAD_BYTES], line[-TAIL_BYTES:]), *_reason(line))
    if isinstance(message, JSONRPCNotification) and json.loads(line).get("id") is not None:
        return _refused(None, INVALID_REQUEST, "The id of a request is a whole number or a text.")
    return None


def too_long(head: str, tail: str, most: int) -> JSONRPCError:
    """Return the answer to a message of more than *most* bytes, of which only *head* and *tail* are known."""
    return _refused(_id_of(head, tail), INVALID_REQUEST, f"The message is longer than {most:,} bytes; it was not read.")


def _reason(line: str) -> tuple[int, str]:
    try:
        json.loads(line)
    except RecursionError:
        return INVALID_REQUEST, "The message is nested too deep."
    except ValueError:
        return PARSE_ERROR, "The message is no JSON."
    return INVALID_REQUEST, "The message is none of JSON-RPC 2.0, or is nested too deep."


def _refused(known: int | str | None, code: int, reason: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=reason))


def _id_of(head: str, tail: str) -> int | str | None:
    """
    Return the id that a message states as a member of its own, and not of what it holds.

    What is left out between *head* and *tail* may open and close objects, so that the tail is read by itself.
    """
    depth = 0
    for token in _TOKEN.finditer(head):
        if token["id"] is not None:
            if depth == 1:
                return _value(token["value"])
            depth -= token[0].endswith("}")
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
    last = _TAIL.search(tail)
    found = _ID.search(last[0]) if last is not None else None
    return _value(found[1]) if found is not None else None


def _value(text: str) -> int | str | None:
    try:
        value = json.loads(text)
    except ValueError:  # Too many digits, or a text that no JSON has.
        return None
    return value if isinstance(value, int | str) else None
