"""What a chemist's commands cost and refuse: `python experiments/chemist_runs.py --rounds 3`.

Runs each command in a process of its own on the drugs of `ten_drugs.csv`, and notes its seconds by the clock, those of
the processor, its exit status, the number of result rows, and the lines that count what was left out. Rows go to
experiments/results/chemist_runs.json."""
import argparse
import csv
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runs import ROOT, note

RESULTS = ROOT / "experiments" / "results" / "chemist_runs.json"
DRUGS = ROOT / "experiments" / "ten_drugs.csv"
ENDS = "*C(=O)c1ccc(F)cc1.*N1CCC(O)(c2ccc(Cl)cc2)CC1"  # of haloperidol
OPEN = "*O[C@H](C)c1cc(F)ccc1C(=O)N(*)C"  # of lorlatinib
COMMANDS = {  # commands that give results
    "report on ten drugs, salts left out": "report DRUGS --out PAGE",
    "report on ten drugs": "report DRUGS --salts largest --out PAGE",
    "100 molecules": "sample molecules-leads -n 100 --out OUT",
    "20 around a scaffold": "sample molecules-leads --fragment '*c1ccc(N2CCOCC2)cc1' -n 20 --out OUT",
    "20 linkers of 3 to 6 atoms": f"link '{ENDS}' -n 20 --link-atoms 3-6 --out OUT",
    "20 macrocycles of 12 to 16": f"sample molecules-leads --fragment '{OPEN}' --close --ring-size 12-16 -n 20 "
                                  "--out OUT",
    "8 edits of each drug": "edit lead-edits --input DRUGS --salts largest -n 8 --out OUT",
    "search by genetics, 500 calls": "optimize --objective qed --start DRUGS --salts largest --budget 500 --out OUT",
    "search by a model, 500 calls": "optimize --objective qed --way model --budget 500 --out OUT",
    "score of ten drugs": "evaluate DRUGS --model molecules-leads --salts largest",
}
REFUSED = {  # commands that are refused
    "two fragments for a ring": f"sample molecules-leads --fragment '{ENDS}' --close",
    "salt as a fragment": "sample molecules-leads --fragment '*c1ccccc1.[Na+]'",
    "unknown element": "sample molecules-leads --fragment '*c1ccc([As](C)C)cc1'",
    "one point to close": "sample molecules-leads --fragment '*c1ccccc1' --close",
    "limits in the wrong order": f"link '{ENDS}' --link-atoms 6-3",
    "ends that are one": "link '*c1ccccc1' --link-atoms 3-6",
    "not a molecule": "sample molecules-leads --fragment '*C1CC'",
    "unknown objective": "optimize --objective qeed",
    "a name for a file": "edit lead-edits --input propranolol",
}


def parts(command: str, out: Path) -> list[str]:
    "Split a command, with its files put in."
    files = dict(DRUGS=str(DRUGS), OUT=str(out), PAGE=str(out.with_suffix(".html")))
    return [files.get(word, word) for word in shlex.split(command)]


def once(command: str) -> dict:
    "Run a command in a process of its own."
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / ("out.jsonl" if command.startswith("optimize") else "out.csv")
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        ran = subprocess.run([sys.executable, "-m", "loflexmdm", *parts(command, out)], capture_output=True, text=True,
                             cwd=folder)
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        said = ran.stderr.replace(str(DRUGS), DRUGS.name).replace(f"{folder}/", "").strip().splitlines()
        return dict(status=ran.returncode, wall=wall, rows=rows_in(out), said=said,
                    cpu=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def rows_in(out: Path) -> int:
    "Count the rows of a file of results."
    if not out.exists(): return 0
    with out.open() as file: return sum(1 for _ in (csv.DictReader(file) if out.suffix == ".csv" else file))


def counted(said: list[str]) -> list[str]:
    "Return the lines that count what was kept and left out."
    words = "left out", " valid", "read:", "refused"
    return [line for line in said if any(word in line for word in words)]


def measure(name: str, command: str, rounds: int, status: int):
    "Run a command some times and note it; RuntimeError for another exit status."
    runs = [once(command) for _ in range(rounds)]
    if any(run["status"] != status for run in runs): raise RuntimeError(f"{command}: {runs[0]['said']}")
    spread = {key: [round(f(run[key] for run in runs), 1) for f in (min, statistics.median, max)]
              for key in ("wall", "cpu")}
    said = runs[0]["said"]
    note(RESULTS, dict(name=name, command=f"loflexmdm {command}", status=status, rounds=rounds, rows=runs[0]["rows"],
                       said=said[-1:] if status else counted(said), **spread))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for name, command in COMMANDS.items(): measure(name, command, args.rounds, 0)
    for name, command in REFUSED.items(): measure(name, command, 1, 2)


if __name__ == "__main__": main()
