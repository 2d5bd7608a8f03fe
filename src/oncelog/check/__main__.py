"""`python -m oncelog.check HISTORY...`: the checker alone, without the broker's command line."""

import sys

from oncelog.check.command import main

sys.exit(main())
