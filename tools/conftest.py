"Tests of the tools find the tools by name; `make test` collects none of them."
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
