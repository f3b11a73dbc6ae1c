"""`python -m perdure` is the `perdure` command."""

import sys

from perdure.cli.main import main

sys.exit(main())
