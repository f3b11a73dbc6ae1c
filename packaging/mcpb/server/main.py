"""The entry point of the bundle: Perdure's own command line."""

import sys

from perdure.cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
