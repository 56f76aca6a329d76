"""`python -m gateway`.

An edge: it calls other edges.
"""

import sys

from gateway.cli.main import main

sys.exit(main())
