"""
Launcher of a child process: ``python -I -S launch.py SIGNAL PARENT UID GID PROGRAM [ARGUMENT…]``.

It sets the user, asks the kernel for SIGNAL at the parent's death, and executes PROGRAM under the same process id. It
is a program of its own for two reasons. A change of user clears the death signal, so that must be set after it; and
code between fork and exec (``preexec_fn``) may deadlock in a parent that has threads.

The kernel binds the death signal to the *thread* that forked: children must be started from a thread that lives as long
as they should.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1
CANNOT_START = 127


def main(words: list[str]) -> int:
    """Become the program in *words*; return only when that fails."""
    death_signal, parent, uid, gid = (int(word) for word in words[:4])
    program = words[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    os.umask(0o077)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        sys.stderr.write(f"prctl: {os.strerror(ctypes.get_errno())}\n")
        return CANNOT_START
    if os.getppid() != parent:  # It went before the request was made: there is no parent to serve.
        return CANNOT_START
    try:
        os.execv(program[0], program)  # noqa: S606 - becoming the program is the point; no shell is involved
    except OSError as error:
        sys.stderr.write(f"{program[0]}: {error.strerror}\n")
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
