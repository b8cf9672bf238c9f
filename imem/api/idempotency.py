"""
Repeats of a request under one ``Idempotency-Key``: one effect, and the same answer, for 24 hours.

The key is taken before the call, and the answer stored after it. A process that dies in between leaves the key taken
for a minute; a repeat is then called again, which the journal answers as ``identical`` where the first was committed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final
from uuid import uuid4

from fastapi.responses import Response

from imem.api.identity import Caller
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError, LeaseHeld

KEY: Final = "Idempotency-Key"
BUDGET_MS: Final = 2_000
"""Budget of a statement about a key, in milliseconds."""


async def answer_once(
    caller: Caller, key: str, asked: tuple[str, str], answer: Callable[[], Awaitable[Response]]
) -> Response:
    """
    Return the stored answer to *asked* under *key*, or what *answer* gives, which is stored.

    Args:
        asked: the operation and its arguments, as text.

    Raises:
        BadInput: the key names another request.
        LeaseHeld: the same request is being answered; retryable.
        ImemError: as *answer*, after which the key is free.
    """
    database = caller.server.stores.database
    place = {"actor": caller.actor.id, "name": key, "attempt": str(uuid4())}
    digest = hashlib.sha256("\0".join(asked).encode("utf-8", "surrogatepass")).digest()
    (row,) = await database.commit("request_begun", {**place, "digest": digest}, deadline=Deadline.after_ms(BUDGET_MS))
    if not row["same"]:
        raise BadInput(KEY, "names another request of the last 24 hours.")
    if row["answer"] is not None:
        return Response(bytes(row["answer"]), media_type="application/json", headers={"Idempotency-Replayed": "true"})
    if not row["mine"]:
        raise LeaseHeld("The same request is being answered.", mend="Repeat it in a moment, under the same key.")
    try:
        response = await answer()
    except ImemError:
        # What nobody knows is asked again by the repeat, which is safe: see above.
        with suppress(ImemError):
            await database.commit("request_refused", place, deadline=Deadline.after_ms(BUDGET_MS))
        raise
    with suppress(ImemError):
        given = {**place, "answer": bytes(response.body)}
        await database.commit("request_answered", given, deadline=Deadline.after_ms(BUDGET_MS))
    return response
