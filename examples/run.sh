#!/bin/sh
# Runs an example with what `make example` installed for it.
# usage: run.sh NAME, as in examples/README.md
set -eu
cd "$(dirname "$0")"
name=${1:-}
if [ -f "$name.py" ]; then
    PYTHONPATH=../sdk/python exec ../.venv-examples/bin/python "$name.py"
elif [ -f "$name.mjs" ]; then
    node=$(node -p 'parseInt(process.versions.node)' 2>/dev/null || echo 0)
    if [ "$node" -lt 22 ]; then
        echo "This example needs Node 22 or newer; here is $(node --version 2>/dev/null || echo none)." >&2
        exit 1
    fi
    exec node "$name.mjs"
elif [ -f "$name.html" ]; then
    echo "http://127.0.0.1:8000/$name.html, with the gateway at: make run ARGS=\"--config examples/$name.toml\""
    exec ../.venv/bin/python -m http.server 8000 --bind 127.0.0.1
fi
echo "make example NAME=..., one of:" $(ls | sed -n 's/\.\(py\|mjs\|html\)$//p') >&2
exit 2
