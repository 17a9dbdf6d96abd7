"""Fresh Python processes without the seconds that imports take: a server that imports the packages of others once and
forks for each command.

`run(argv)` is `start(argv)`, a real start, by a fork. The server imports nothing of this package, so that a command
that forgets an import fails as it would in a process of its own; it has one thread, and every command seeds its
generators anew. What Python decides when it starts cannot be chosen per command: its options and its variables, such
as PYTHONHASHSEED. Tests of these, of imports, locks and signals start a real process."""
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import random
import runpy
import subprocess
import sys
import tempfile
import types
from pathlib import Path

PACKAGES = (
    "nbdev.test", "matplotlib.pyplot", "matplotlib_inline.backend_inline", "numpy", "torch", "torch._dynamo",
    "jaxtyping", "pydantic", "safetensors.torch", "filelock", "tqdm.auto", "rdkit.Chem", "rdkit.Chem.AllChem",
)
ALWAYS = dict(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MPLBACKEND="agg")


# In the server

def import_packages():
    "Import what commands need; all later processes share the memory."
    for name in PACKAGES: importlib.import_module(name)
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    if threads > 1: raise RuntimeError(f"{threads} threads: a fork would have one of them only")


def serve() -> dict:
    "Fork for each request until there are no more, and say how each ended; in a child, return its request."
    for line in sys.stdin:
        if not (child := os.fork()): return json.loads(line)
        _, status, used = os.wait4(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]), flush=True)
    sys.exit()


def become(request: dict):
    "Take over the directory, environment, files and random state of a new process."
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        opened = os.open(request[name], os.O_RDONLY if name == "stdin" else os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = open(0, encoding=sys.stdin.encoding, closefd=False)  # the server's has read ahead
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    numpy, torch = sys.modules["numpy"], sys.modules["torch"]
    for seed in (random.seed, numpy.random.seed, torch.default_generator.seed): seed()  # as at a start, by the system
    places = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = ["" if request["argv"][0] == "-c" else request["cwd"], *places]


def execute(option: str, what: str, *argv: str):
    "Run code (`-c`) or a module (`-m`) as the main program."
    sys.argv = [option, *argv]
    if option == "-m": return runpy.run_module(what, run_name="__main__", alter_sys=True)
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    exec(compile(what, "<string>", "exec"), vars(main))


# In the tests

def started_with(env: dict) -> dict:
    "The variables that Python reads when it starts."
    return {k: v for k, v in env.items() if k.startswith("PYTHON") and k != "PYTHONPATH"}


class Server:
    "The server's process, and the commands that it runs, one after the other."
    def __init__(self):
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | ALWAYS  # each command has its own path
        self.env = started_with(env)
        self.seconds = 0.0  # of the CPU, of all commands
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def ask(self, request: dict) -> int:
        "Exit code of a command, minus the signal that ended it."
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        if not (answer := self.process.stdout.readline()): raise RuntimeError("the server of processes has ended")
        code, seconds = json.loads(answer)
        self.seconds += seconds
        return code

    def run(self, argv: list, cwd=".", env: dict | None = None, input: str = "") -> subprocess.CompletedProcess:
        """`python ARGV`, where ARGV begins with -c or -m: exit code, stdout and stderr as text. ValueError for options
        and variables that only a real start can follow."""
        argv, env = [str(a) for a in argv], dict(os.environ if env is None else env) | ALWAYS
        if argv[0] not in ("-c", "-m"): raise ValueError(f"argv={argv}: must begin with -c or -m")
        if started_with(env) != self.env: raise ValueError(f"env={started_with(env)}: must be {self.env}, the server's")
        with tempfile.TemporaryDirectory() as place:
            files = {name: Path(place) / name for name in ("stdin", "stdout", "stderr")}
            for name, path in files.items(): path.write_text(input if name == "stdin" else "", encoding="utf-8")
            request = dict(argv=argv, cwd=os.path.abspath(cwd), env=env, **{k: str(p) for k, p in files.items()})
            code = self.ask(request)
            out, err = (files[name].read_text(encoding="utf-8") for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(argv, code, out, err)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@functools.cache
def server() -> Server:
    "The server of this process; it ends with it."
    atexit.register((started := Server()).close)
    return started


def run(argv: list, **options) -> subprocess.CompletedProcess:
    "`Server.run` by the server of this process."
    return server().run(argv, **options)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, of those that it has waited for, of commands by `run`, and, on Linux, of
    the processes that it has started and that still run."""
    used, known = os.times(), server.cache_info().currsize
    forked, own = (server().seconds, server().process.pid) if known else (0.0, 0)
    running = sum(seconds_below(pid) for pid in started_by(os.getpid()) if pid != own)
    return used.user + used.system + used.children_user + used.children_system + forked + running


def started_by(pid: int) -> list[int]:
    "Return the running processes that a process has started, on Linux."
    found = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir(): found += map(int, (thread / "children").read_text().split())
    return found


def seconds_below(pid: int) -> float:
    "Return the CPU seconds of a running process and of all that it has started."
    try: fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    except OSError: return 0.0
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK") + sum(map(seconds_below, started_by(pid)))


def start(argv: list, **options) -> subprocess.CompletedProcess:
    "`python ARGV` in a process that is started."
    return subprocess.run([sys.executable, *map(str, argv)], capture_output=True, text=True, **options)


if __name__ == "__main__":
    sys.path.pop(0)
    import_packages()
    become(request := serve())
    execute(*request["argv"])
