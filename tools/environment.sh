#!/bin/sh
# Puts the packages of requirements/NAME.lock into .venv, which is made when it is missing, and the checkout beside them.
#
# usage: tools/environment.sh runtime|dev|docs
#
# Every package is held against the hash in its lock. A crash leaves an environment that the next run completes: the stamp
# .venv/.NAME is touched last.
set -eu
cd "$(dirname "$0")/.."
name=$1
python=${PYTHON:-python3}
venv=.venv

say() { echo "imem: $*" >&2; }

if [ ! -x "$venv/bin/python" ]; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
        say "Python 3.11 or newer is needed; '$python' is older or cannot be run. Name another: make PYTHON=python3.12 demo"
        exit 1
    }
    # A half-made environment has a python and no pip: it would never be mended, so it does not stay.
    "$python" -m venv "$venv" || {
        rm -rf "$venv"
        say "'$python' cannot make environments. Install its venv module (Debian, Ubuntu: apt-get install python3-venv)."
        exit 1
    }
fi

unreachable() {
    say "The packages of requirements/$1.lock could not be fetched (the reason stands above). Check the network or pip's" \
        "index setting, then run the same command again: it goes on where it stopped."
    exit 1
}

if [ ! "$venv/.installer" -nt requirements/installer.lock ]; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        -r requirements/installer.lock || unreachable installer
    touch "$venv/.installer"
fi

# uv is ten times faster but reads none of pip's settings: where only pip knows the way to a registry, pip does the work.
say "Installing the packages of requirements/$name.lock."
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "requirements/$name.lock" ||
    "$venv/bin/python" -m pip install --disable-pip-version-check --require-hashes -r "requirements/$name.lock" ||
    unreachable "$name"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-index --no-deps --no-build-isolation --editable .
touch "$venv/.$name"
