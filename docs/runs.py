"What the scripts of stored figures share: the commit that a run began with, and the file that its figures go to."
import json
import subprocess
from pathlib import Path

from loflexmdm.files import locked, write_file

ROOT = Path(__file__).parents[1]
COMMIT = subprocess.run(
    ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
).stdout.strip()  # of the code when the run began


def note(results: Path, row: dict):
    "Add a row, with the commit, to the results; one of the same name takes its place."
    row = without_nan(row | dict(commit=COMMIT))
    with locked(results.with_name(f".{results.name}.lock")):
        rows = json.loads(results.read_text()) if results.exists() else []
        rows = sorted([r for r in rows if r["name"] != row["name"]] + [row], key=lambda r: r["name"])
        write_file(results, json.dumps(rows, indent=1) + "\n")
    print(json.dumps(row), flush=True)


def without_nan(value):
    "The same with None in place of NaN, which JSON does not know."
    if isinstance(value, dict): return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, list): return [without_nan(v) for v in value]
    return None if isinstance(value, float) and value != value else value
