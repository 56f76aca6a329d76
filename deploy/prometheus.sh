#!/bin/sh
# Unpacks Debian's Prometheus under a folder: DIR/usr/bin/prometheus and DIR/usr/bin/promtool.
# usage: prometheus.sh DIR
set -eu
dir=$1

command -v prometheus >/dev/null && command -v promtool >/dev/null && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || exit 1
mkdir -p "$dir"
cd "$dir"
[ "$(id -u)" != 0 ] || apt-get -qq update
apt-get -qq -o APT::Sandbox::User=root download prometheus 2>/dev/null
dpkg-deb -x prometheus_*.deb .
rm prometheus_*.deb
usr/bin/promtool --version >/dev/null 2>&1
