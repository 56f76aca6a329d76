#!/bin/sh
# Installs one system package when it can, or says what to do.
# usage: packages.sh DEBIAN_NAME BREW_NAME WHAT
set -eu
debian=$1 brew=$2 what=$3

if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "Installing $debian ..."
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$debian" >/dev/null
elif [ -n "$brew" ] && command -v brew >/dev/null; then
    echo "Installing $brew ..."
    brew install --quiet "$brew"
else
    echo "Lanewise needs $what. Install it (Debian: apt-get install $debian${brew:+; macOS: brew install $brew}) and try again." >&2
    exit 1
fi
