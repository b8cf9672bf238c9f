#!/bin/sh
# Starts Postgres with its key in a file that is its user's alone, which it insists on.
#
# usage: start.sh postgres [OPTION…]
set -eu
install -d -o postgres -g postgres -m 700 /run/tls
install -o postgres -g postgres -m 600 /run/secrets/postgres.key /run/tls/server.key
exec docker-entrypoint.sh "$@"
