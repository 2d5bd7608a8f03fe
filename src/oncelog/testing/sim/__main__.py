"""`python -m oncelog.testing.sim`: the same as `oncelog sim`."""

import sys

from oncelog.testing.sim.command import main

if __name__ == "__main__":
    sys.exit(main())
