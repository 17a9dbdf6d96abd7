"""Lines of source code of this Python and of what is installed in it:

    python experiments/code_lines.py --lines 200000 --out runs/corpora/code_lines.txt

Stripped lines of 20 to 120 printable ASCII characters, each once, in an order that the seed fixes. Another environment
has other lines."""
import argparse
import random
import sysconfig
from pathlib import Path

FOLDERS = "stdlib", "purelib"  # of which the second may lie within the first


def code_lines(shortest: int = 20, longest: int = 120) -> list[str]:
    "Return the stripped lines of these lengths, each once, sorted."
    files = {file for folder in FOLDERS for file in Path(sysconfig.get_path(folder)).rglob("*.py")}
    found = {line.strip() for file in files for line in file.read_text(errors="ignore").split("\n")}
    return sorted(s for s in found if shortest <= len(s) <= longest and s.isascii() and s.isprintable())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/corpora/code_lines.txt"))
    args = parser.parse_args()
    found = code_lines()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    kept = random.Random(args.seed).sample(found, min(args.lines, len(found)))
    args.out.write_text("\n".join(kept) + "\n", encoding="utf-8")
    print(f"{len(kept):,} of {len(found):,} lines")


if __name__ == "__main__": main()
