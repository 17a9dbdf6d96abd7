# toy_verb.py
"Count the letters of a text: a command of another package."
from dataclasses import dataclass

from loflexmdm.cli import Options, command


@dataclass(frozen=True, kw_only=True)
class CountOptions(Options):
    "Options of count."
    text: str  # text to count
    letter: str = ""  # letter that counts; empty: all


def add_count(parser, argv):
    "Add the options of count."
    parser.add_argument("text", metavar="TEXT", help="text to count")
    parser.add_argument("--letter", metavar="LETTER", help="letter that counts [all]")


@command("count", "count letters", add_count, "example:\n  loflexmdm count abc --letter b", options=CountOptions)
def run_count(options: CountOptions):
    "Print the number of letters."
    print(options.text.count(options.letter) if options.letter else len(options.text))
