#!/bin/sh
# Unpacks Debian's Prometheus and Alertmanager under a folder, as DIR/usr/bin/prometheus, promtool,
# prometheus-alertmanager and amtool.
# usage: prometheus.sh DIR
set -eu
dir=$1

has() { command -v "$1" >/dev/null; }
has prometheus && has promtool && has amtool && { has alertmanager || has prometheus-alertmanager; } &&
  exit 0
has apt-get && has dpkg-deb || exit 1
mkdir -p "$dir"
cd "$dir"
[ "$(id -u)" != 0 ] || apt-get -qq update
for package in prometheus prometheus-alertmanager; do
  apt-get -qq -o APT::Sandbox::User=root download "$package" 2>/dev/null
  dpkg-deb -x "${package}"_*.deb .
  rm "${package}"_*.deb
done
usr/bin/promtool --version >/dev/null 2>&1
usr/bin/amtool --version >/dev/null 2>&1
