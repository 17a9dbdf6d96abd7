"Command line: `main` runs it; each module defines a command, or parts shared by several."
from loflexmdm.cli.commands import Options, command, main, run_line

__all__ = ["Options", "command", "main", "run_line"]
