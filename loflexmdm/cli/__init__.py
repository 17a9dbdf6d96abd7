"The command line: `main` runs it, each module of this room defines a command or what several of them share."
from loflexmdm.cli.commands import main, run_line

__all__ = ["main", "run_line"]
