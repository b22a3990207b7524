"""``python -m pfrnn``."""

import sys

from pfrnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
