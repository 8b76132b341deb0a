"""`python -m repro`: the command line, where its script is not on the path."""

import sys

from repro.cli import main

sys.exit(main())
