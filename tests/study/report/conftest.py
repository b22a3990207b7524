import sys
from pathlib import Path

# The generator of simulated results is a plain module beside the tests.
sys.path.insert(0, str(Path(__file__).parent))
