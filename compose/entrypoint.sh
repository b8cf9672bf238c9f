#!/bin/sh
# Runs a program that trusts, beside the public authorities, the one that signed the servers' certificates.
#
# usage: entrypoint.sh PROGRAM [ARGUMENT…]
#
# Postgres and the Valkeys are told of that authority by their addresses; Neo4j's driver and calls over HTTPS read the file
# that SSL_CERT_FILE names.
set -eu
if [ -r /run/secrets/ca ]; then
    SSL_CERT_FILE=${TMPDIR:-/tmp}/authorities.pem
    cat "$(python -m certifi)" /run/secrets/ca >"$SSL_CERT_FILE"
    export SSL_CERT_FILE
fi
exec "$@"
