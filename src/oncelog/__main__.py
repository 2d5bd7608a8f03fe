"""`python -m oncelog` is the command `oncelog`."""

import sys

from oncelog.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
