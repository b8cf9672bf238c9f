#!/bin/sh
# Makes what the containers read at /run/secrets: passwords, addresses that hold them, certificates and their keys.
#
# usage: compose/secrets.sh [FOLDER]      (compose/secrets by default)
#
# What is there stays: a second run makes only what is missing, and addresses follow the passwords. Nobody but the owner may
# enter the folder; the files inside can be read by whoever gets there, since each container has a user of its own. A crash
# leaves whole files alone; run it again. openssl is needed, nothing else.
set -eu
folder=${1:-$(dirname "$0")/secrets}
umask 077
mkdir -p "$folder"
chmod 700 "$folder"
cd "$folder"

# Puts standard input into a file, whole or not at all; nothing comes of a program that failed.
put() {
    cat >"$1.new"
    [ -s "$1.new" ] || {
        echo "secrets.sh: nothing could be made for $1." >&2
        exit 1
    }
    chmod 444 "$1.new"
    mv -f "$1.new" "$1"
}

password() {
    [ -s "$1" ] || openssl rand -hex 24 | put "$1"
}

# How long certificates are good for, in days.
authority_days=3650
server_days=825

new_key() {
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256
}

authority() {
    if [ -s ca ]; then return; fi
    new_key | put ca.key
    chmod 400 ca.key
    openssl req -x509 -new -key ca.key -sha256 -days "$authority_days" -subj "/CN=imem authority" \
        -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign | put ca
    rm -f ./*.crt
}

# Certificate and key of one server, by the names under which it is reached: its service's, and this machine's own.
certificate() {
    if [ -s "$1.crt" ] && [ -s "$1.key" ]; then return; fi
    new_key | put "$1.key"
    put "$1.ext" <<EXTENSIONS
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName=DNS:$1,DNS:localhost,IP:127.0.0.1
EXTENSIONS
    openssl req -new -key "$1.key" -subj "/CN=$1" |
        openssl x509 -req -CA ca -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" -sha256 -days "$server_days" \
            -extfile "$1.ext" 2>/dev/null | put "$1.crt"
    rm -f "$1.ext"
}

# Address of Postgres for a role, from the file of its password.
postgres_url() {
    echo "postgresql://$1:$(cat "$2")@postgres:5432/imem?sslmode=verify-full&sslrootcert=/run/secrets/ca"
}

authority
for server in postgres neo4j valkey-working valkey-durable valkey-cache; do
    certificate "$server"
done

password postgres_owner_password
password postgres_app_password
password postgres_curators_password
password postgres_pipelines_password
postgres_url imem postgres_owner_password | put postgres_admin_url
postgres_url imem_app postgres_app_password | put postgres_url
postgres_url imem_curators postgres_curators_password | put postgres_curator_url
postgres_url imem_pipelines postgres_pipelines_password | put postgres_pipeline_url

password neo4j_password
echo "neo4j/$(cat neo4j_password)" | put neo4j_auth

for role in working durable cache; do
    password "valkey_${role}_password"
    secret=$(cat "valkey_${role}_password")
    echo "requirepass $secret" | put "valkey_${role}_auth"
    echo "rediss://:$secret@valkey-$role:6379/0?ssl_cert_reqs=required&ssl_ca_certs=/run/secrets/ca" |
        put "valkey_${role}_url"
done
