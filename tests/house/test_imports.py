"What can be imported where, and scripts that start processes."
import subprocess
import sys

import pytest

IMPORT_ALL = """
import importlib, pkgutil, sys
import torch  # what it needs of the system is its own affair
sys.modules["fcntl"] = None  # as on Windows
import loflexmdm
for module in pkgutil.walk_packages(loflexmdm.__path__, "loflexmdm."): importlib.import_module(module.name)
"""


def test_everything_can_be_imported_without_fcntl():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


SCRIPT = """
import sys
from loflexmdm.support.worker_pool import worker_pool

def main():
    with worker_pool(2, "spawn") as pool: print(sum(pool.map(abs, range(-3, 0))))

{call}
"""


@pytest.mark.parametrize("call, out, error", [
    ("if __name__ == '__main__': main()", "6\n", ""),
    ("main()", "", "ValueError: processes=2: a worker process died; a script that starts processes needs")])
def test_a_script_that_starts_processes(call, out, error, tmp_path):
    (script := tmp_path / "script.py").write_text(SCRIPT.format(call=call))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines() or [""]
    assert done.stdout == out and lines[-1].startswith(error)
    assert "BrokenProcessPool" not in done.stderr and "bootstrapping" not in done.stderr
    assert done.stderr.count("Traceback") == (1 if error else 0)
