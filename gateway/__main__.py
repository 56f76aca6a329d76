"""Runs the command line, for `python -m gateway`. This is an edge."""

import sys

from gateway.cli.main import main

sys.exit(main())
