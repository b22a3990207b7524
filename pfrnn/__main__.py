"""``python -m pfrnn``."""

import sys

from pfrnn.study.cli import main

if __name__ == "__main__":
    sys.exit(main())
