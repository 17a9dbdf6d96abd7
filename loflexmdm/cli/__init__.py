"Command line: `main` runs it; each module defines a command, or parts shared by several."
from loflexmdm.cli.commands import main, run_line

__all__ = ["main", "run_line"]
