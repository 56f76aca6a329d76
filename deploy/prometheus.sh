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
# Debian's Alertmanager reads its templates from where the package installs them: from here instead,
# by a path of the same length, where it is started in DIR.
LC_ALL=C sed -i 's|/usr/share/prometheus/alertmanager|usr/share/prometheus//alertmanager|g' \
  usr/bin/prometheus-alertmanager
usr/bin/promtool --version >/dev/null 2>&1
usr/bin/amtool --version >/dev/null 2>&1
