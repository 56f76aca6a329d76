#!/bin/sh
# Makes the secrets of deploy/compose.yaml that are not there yet; what is there stays.
# usage: secrets.sh FOLDER [OWNER]
set -eu
folder=$1 owner=${2:-}
umask 077

secret() { # the name of a file, and what stands before and behind the secret in it
    [ -s "$folder/$1" ] || printf '%s%s%s' "$2" "$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')" "$3" >"$folder/$1"
}

mkdir -p "$folder"
secret admin-key "" ""
secret key-peppers "1:" ""
secret redis-password "" ""
printf 'redis://:%s@redis:6379' "$(cat "$folder/redis-password")" >"$folder/redis-url"
[ -z "$owner" ] || chown -R "$owner" "$folder"
