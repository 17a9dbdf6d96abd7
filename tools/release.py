"""Prepare a release: `make release`, or `python tools/release.py [STEP...]`. Nothing is uploaded.

    check   one version in the package, CITATION.cff and the changelog, which has its date and nothing unreleased
    build   dist/ from what is committed, and `twine check --strict`
    smoke   the wheel in a fresh environment of each Python from 3.11 to 3.14 that this machine has
    notes   dist/NOTES.md, the part of the changelog on this version"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
MINORS = range(11, 15)
HEADING = r"## (\d+\.\d+\.\d+) - (\d{4}-\d{2}-\d{2})"
TORCH = os.environ.get("TORCH", "torch --index-url https://download.pytorch.org/whl/cpu").split()
SMOKE = """
import loflexmdm
model = loflexmdm.load("star-tiny")
drawn = model.sample(n=2, seed=0)
assert len(drawn.texts) == 2 and loflexmdm.__version__ == VERSION
assert model.score(drawn.texts[:1]).nats[0] > 0
print("loflexmdm", loflexmdm.__version__, "sampled and scored")
"""


def run(*command: object, **options) -> subprocess.CompletedProcess:
    print("+", *command, flush=True)
    return subprocess.run([str(c) for c in command], check=True, text=True, **options)


def read(name: str) -> str: return (ROOT / name).read_text(encoding="utf-8")


def version() -> str:
    "Return the version in the package, from which setup.py takes it."
    return re.search(r'(?m)^__version__ = "(.+)"$', read("loflexmdm/__init__.py"))[1]


def parts(changelog: str) -> dict[str, str]:
    "Return the text below each heading of level 2, in order."
    titles = re.split(r"(?m)^## (.+)$", changelog)[1:]
    return {title: text.strip() for title, text in zip(titles[::2], titles[1::2])}


def notes(changelog: str, number: str) -> str:
    "Return what a changelog says on a version. ValueError unless it has a part on it, dated."
    for title, text in parts(changelog).items():
        if (m := re.fullmatch(HEADING, f"## {title}")) and m[1] == number: return text + "\n"
    raise ValueError(f"CHANGELOG.md: no heading '## {number} - YYYY-MM-DD'")


def faults(number: str, changelog: str, citation: str) -> list[str]:
    "Return what keeps a version from being released, a line each."
    found = [] if re.fullmatch(r"\d+\.\d+\.\d+", number) else [f"version {number}: must be MAJOR.MINOR.PATCH"]
    try: notes(changelog, number)
    except ValueError as e: found.append(str(e))
    if parts(changelog).get("Unreleased"): found.append("CHANGELOG.md: lines under Unreleased belong to the version")
    cited = re.search(r"(?m)^version: (.+)$", citation)[1]
    if cited != number: found.append(f"CITATION.cff: has version {cited}, the package {number}")
    return found


def check():
    number = version()
    found = faults(number, read("CHANGELOG.md"), read("CITATION.cff"))
    status = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout
    if f"loflexmdm=={number}" not in read("nbs/how_to/versions.ipynb"):
        found.append(f"nbs/how_to/versions.ipynb: does not pin {number}")
    if status: found.append("files that are not committed: " + ", ".join(line[3:] for line in status.splitlines()[:5]))
    tags = subprocess.run(["git", "tag", "--list", f"v{number}"], cwd=ROOT, capture_output=True, text=True).stdout
    if tags: found.append(f"the tag v{number} exists; a released version is not changed")
    if found: sys.exit("release: " + "\nrelease: ".join(found))


def build():
    "Make the source archive from the last commit, and the wheel from that archive."
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory) / "source.tar"
        run("git", "archive", "-o", archive, "HEAD", cwd=ROOT)
        run("tar", "-xf", archive, "-C", directory)
        archive.unlink()
        run(sys.executable, "-m", "build", "-o", DIST, directory)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(DIST.glob("loflexmdm-*")))
    for file in sorted(DIST.glob("loflexmdm-*")): print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB")


def interpreters() -> dict[str, str]:
    "Return the Pythons on the PATH that the package supports. Those of pyenv: PYENV_VERSION=3.12.1:3.13.0."
    found = {}
    for minor in MINORS:
        if not (program := shutil.which(f"python3.{minor}")): continue
        said = subprocess.run([program, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
        if said.returncode == 0: found[f"3.{minor}"] = said.stdout.strip()  # a shim of pyenv may lead nowhere
    return found


def smoke():
    "Install the wheel with the requirements of users, then sample and score in Python and at the shell."
    [wheel], found = DIST.glob("loflexmdm-*.whl"), interpreters()
    missing = [f"3.{minor}" for minor in MINORS if f"3.{minor}" not in found]
    for name, python in found.items():
        with tempfile.TemporaryDirectory() as directory:
            run(python, "-m", "venv", directory)
            own = Path(directory) / "bin"
            run(own / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *TORCH)
            run(own / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
            run(own / "python", "-c", SMOKE.replace("VERSION", repr(version())), cwd=directory)
            run(own / "loflexmdm", "sample", "star-tiny", "-n", "2", "--out", "two.csv", cwd=directory)
        print(f"smoke: Python {name} passed", flush=True)
    if missing: print("smoke: not on this machine, so not tried: Python " + ", ".join(missing))
    if not found: sys.exit("smoke: no Python from 3.11 to 3.14 was found")


def write_notes():
    DIST.mkdir(exist_ok=True)
    (DIST / "NOTES.md").write_text(notes(read("CHANGELOG.md"), version()), encoding="utf-8")
    print(f"dist/NOTES.md written; CONTRIBUTING.md says how to publish {version()}")


STEPS = dict(check=check, build=build, smoke=smoke, notes=write_notes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"one or more of {', '.join(STEPS)}; all by default")
    asked = parser.parse_args().steps
    for name in asked:
        if name not in STEPS: parser.error(f"step={name!r}: choose one of {', '.join(STEPS)}")
    for name in asked or STEPS: STEPS[name]()


if __name__ == "__main__": main()
