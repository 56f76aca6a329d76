"""Serves the console at `/console`: the pages in a browser, as static files of this package.

A path comes in, a file with its headers goes out; what the pages show they ask the API like any
client. `static/index.html` loads `static/app.js`, which reads like a table of the pages;
`static/vendor/` is built from npm by `make console`. Read `routes.py` first.
"""
