"""
Asks the process of :mod:`tests.forking` for a command, and waits for its end.

As a program (``python -I -S forking_client.py ADDRESS KIND [WORD…]``) it stands for the command: it hands on what it
was given, and the signals that ask for an end, and ends as the command ends. It imports little: that is the point.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

TIMEOUT_S = 300.0


def ended(
    address: str,
    kind: str,
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    streams: Sequence[int],
    signals: Sequence[int] = (),
    timeout_s: float | None = TIMEOUT_S,
) -> int:
    """
    Have a command run, and return how it ended: its exit code, or the negative number of a signal.

    Args:
        address: of the process, as its start gave it.
        kind: ``imem``, ``module`` or ``script``.
        words: the arguments; the first is a module's name, or a script's path.
        env: the whole environment.
        cwd: the folder.
        streams: descriptors of standard input, output and error.
        signals: which of those that come meanwhile the command gets instead of this process.
        timeout_s: how long it may take; None without limit.

    Raises:
        TimeoutError: it takes longer than a command may; it is killed.
    """
    asked = json.dumps({"kind": kind, "words": list(words), "env": dict(env), "cwd": cwd}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        connection.connect(f"\0{address}")
        socket.send_fds(connection, [len(asked).to_bytes(4, "big")], streams)
        connection.sendall(asked)
        for number in signals:
            signal.signal(number, lambda got, _: connection.send(bytes((got,))))
        answer = connection.recv(4)
    if len(answer) < 4:
        raise RuntimeError("The process that commands are forks of has gone.")
    return int.from_bytes(answer, "big", signed=True)


if __name__ == "__main__":
    code = ended(
        sys.argv[1], sys.argv[2], sys.argv[3:], env=os.environ, cwd=os.getcwd(), streams=(0, 1, 2),  # noqa: PTH109 - see above
        signals=(signal.SIGTERM, signal.SIGINT),
        timeout_s=None,  # Whoever runs a program has a limit of their own.
    )  # fmt: skip
    sys.exit(code if code >= 0 else 128 - code)
