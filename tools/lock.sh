#!/bin/sh
# Makes the lock files of requirements/ anew from pyproject.toml: names, versions and hashes, no addresses.
#
# usage: tools/lock.sh [--upgrade]
#
# Without --upgrade, versions that stand in a lock stay while they fit. Each lock is constrained by the one before it, so
# that one environment can hold them all: runtime < dev < docs. A crash leaves whole files of either age; run it again.
set -eu
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
upgrade=${1:-}

lock() {
    name=$1
    shift
    UV_CUSTOM_COMPILE_COMMAND="make lock" "$uv" pip compile --quiet --universal --python-version 3.11 \
        --generate-hashes --no-emit-index-url --no-annotate ${upgrade:+"$upgrade"} \
        --output-file "requirements/$name.lock" "$@"
    echo "requirements/$name.lock: $(grep -c '==' "requirements/$name.lock") packages"
}

lock runtime pyproject.toml
lock dev pyproject.toml --group dev --constraint requirements/runtime.lock
lock docs pyproject.toml --group docs --constraint requirements/dev.lock
lock installer --group installer --constraint requirements/dev.lock
