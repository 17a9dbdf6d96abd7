"""Load test of `loflexmdm app` on the loopback address: seven ordinary clients, and one that sends the worst requests.

    python experiments/service_load.py --seconds 600 --workers 2

It prints, as JSON: requests per second, median, 99th percentile and longest of the ordinary clients, by themselves (for
at most a minute) and beside the worst one; the statuses that each got; memory of all processes before and after each,
and at most; the seconds until calls are answered again after all workers were killed; and those from SIGINT to the end,
with a page open. Each client has an address of its own in 127.0.0.0/8, as on a network."""
import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

from runs import ROOT, note

RESULTS = ROOT / "experiments" / "results" / "service_load.json"
MODEL = "molecules-leads"
JSON = {"content-type": "application/json"}
ORDINARY = dict(model=MODEL, prompts="*c1ccncc1", n=4)
WORST = [
    ("sample", dict(model=MODEL, n=2048), 1.0),  # leaves after a second
    ("sample", dict(model=MODEL, prompts="C" * 14_999 + "*"), 90),
    ("score", dict(model=MODEL, texts=["c1ccccc1" * 4] * 512, states=64), 1.0),
    ("score", dict(model=MODEL, texts=["CCO"], states=10**9), 90),
    ("sample", dict(model=MODEL, n=2048, valid=None, temperature=5.0, seconds=3), 90),
    ("fill", dict(model=MODEL, prompts=["..."] * 200), 90),
    ("sample", "[" * 500_000, 90), ("sample", dict(model=MODEL, prompts="*" + "C1CC" * 3000), 90),
]


def start(*argv: str, stdout: int = subprocess.DEVNULL, **env: str) -> tuple[subprocess.Popen, str]:
    "Start a server on a free port by a command line, with variables of its environment; return process and address."
    argv = [sys.executable, "-m", "loflexmdm.cli", *argv, "--port", "0", "--device", "cpu"]
    with tempfile.NamedTemporaryFile() as log:  # a pipe that nobody reads would stop the server when it is full
        process = subprocess.Popen(argv, stdout=stdout, stderr=log, env=os.environ | env)
        said = Path(log.name)
        while not (found := re.search(r"open (http://[^/\s]+)", said.read_text())):
            if process.poll() is not None: raise RuntimeError(f"the server did not start: {said.read_text()}")
            time.sleep(0.1)
    return process, found[1]


def client(address: str, number: int) -> httpx.AsyncClient:
    "Return a client with an address of its own."
    return httpx.AsyncClient(base_url=address, timeout=90,
                             transport=httpx.AsyncHTTPTransport(local_address=f"127.0.0.{10 + number}"))


async def ordinary(address: str, number: int, end: float, times: list, statuses: Counter):
    "Send requests until the end."
    async with client(address, number) as http:
        while time.monotonic() < end:
            begun = time.monotonic()
            try: statuses[(await http.post("/v1/sample", json=ORDINARY)).status_code] += 1
            except httpx.TimeoutException: statuses["no answer in 90 s"] += 1
            times.append(time.monotonic() - begun)


async def worst(address: str, end: float, statuses: Counter):
    "Send the worst requests, four at a time, until the end."
    async def send(http, name, body, patience):
        sent = dict(json=body) if isinstance(body, dict) else dict(content=body, headers=JSON)
        try: statuses[(await http.post(f"/v1/{name}", timeout=patience, **sent)).status_code] += 1
        except httpx.TimeoutException: statuses["left"] += 1
    async with client(address, 90) as http:
        while time.monotonic() < end:
            for part in WORST[:4], WORST[4:]: await asyncio.gather(*(send(http, *one) for one in part))


async def steady(address: str, pid: int, seconds: float) -> dict:
    "Draw, score and read the metrics, a call every two seconds; return the memory of each minute and the statuses."
    used, statuses, begun = [memory(pid)], Counter(), time.monotonic()
    async with client(address, 0) as http:
        for k in range(int(seconds / 2)):
            if k % 4 < 2: answer = await http.post("/v1/sample", json=ORDINARY | dict(seed=k))
            elif k % 4 == 2: answer = await http.post("/v1/score", json=dict(model=MODEL, texts=["C" * (k % 30 + 1)]))
            else: answer = await http.get("/metrics")
            statuses[str(answer.status_code)] += 1
            if time.monotonic() - begun >= 60 * len(used): used.append(memory(pid))
            await asyncio.sleep(2)
    return dict(memory_mb=used, statuses=dict(statuses))


async def watch(pid: int, most: list):
    "Keep the largest memory of a server in `most[0]`."
    while True:
        most[0] = max(most[0], memory(pid))
        await asyncio.sleep(2)


async def phase(address: str, seconds: float, with_worst: bool) -> dict:
    "Run the clients for some seconds; return figures."
    times, statuses, bad, end = [], Counter(), Counter(), time.monotonic() + seconds
    tasks = [ordinary(address, i, end, times, statuses) for i in range(7)]
    await asyncio.gather(*tasks, *([worst(address, end, bad)] if with_worst else []))
    times.sort()
    at = lambda share: round(times[min(len(times) - 1, int(share * len(times)))], 3)
    return dict(requests=len(times), per_second=round(len(times) / seconds, 2), p50=at(0.5), p99=at(0.99),
                longest=round(times[-1], 3), statuses=dict(statuses), worst={str(k): n for k, n in bad.items()})


def processes(pid: int) -> list[int]:
    "Return a process, those that it has started, and those that they have: the workers are the last."
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [pid, *(process for child in found for process in processes(int(child)))]


def workers_of(pid: int) -> set[int]:
    "Return the processes of a server that answer calls: those that its helpers have started."
    return {worker for helper in processes(pid)[1:] for worker in processes(helper)[1:]}


def memory(pid: int) -> int:
    "Return the resident memory of a server and its workers, in MB."
    def kilobytes(p):
        try: return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{p}/status").read_text())[1])
        except (OSError, TypeError): return 0  # it has ended
    return sum(map(kilobytes, processes(pid))) // 1024


async def recovery(pid: int, address: str) -> float:
    "Kill all workers; return the seconds until a call is answered again."
    for worker in workers_of(pid): os.kill(worker, signal.SIGKILL)
    begun = time.monotonic()
    async with client(address, 0) as http:
        while True:
            with contextlib.suppress(httpx.TimeoutException):
                if (await http.post("/v1/sample", json=ORDINARY)).status_code == 200: break
            await asyncio.sleep(0.1)
    return round(time.monotonic() - begun, 1)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60, help="beside the worst client")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steady", type=float, default=0, help="seconds of one client, instead")
    options = parser.parse_args()
    process, address = start("app", MODEL, "--workers", str(options.workers), "--seconds", "10")
    if options.steady:
        found = await steady(address, process.pid, options.steady)
        process.send_signal(signal.SIGINT)
        await asyncio.to_thread(process.communicate, timeout=120)
        return note(RESULTS, dict(name="steady", workers=options.workers, seconds=options.steady, **found))
    used = [memory(process.pid)]
    found = dict(workers=options.workers, load_average=os.getloadavg()[0])
    most = [used[0]]
    watching = asyncio.ensure_future(watch(process.pid, most))
    for name, seconds in dict(alone=min(60, options.seconds), beside_the_worst=options.seconds).items():
        found[name] = await phase(address, seconds, name != "alone")
        used.append(memory(process.pid))
        print(json.dumps({name: found[name], "memory_mb": used}), file=sys.stderr, flush=True)
    watching.cancel()
    found |= dict(memory_mb=used, most_memory_mb=most[0], load_average_after=os.getloadavg()[0])
    found["recovery_seconds"] = await recovery(process.pid, address)
    async with client(address, 1) as page:
        await page.get("/")
        async with page.stream("GET", "/gradio_api/heartbeat/load") as beat:
            found["heartbeat"], begun = beat.status_code, time.monotonic()
            process.send_signal(signal.SIGINT)
            await asyncio.to_thread(process.communicate, timeout=120)
    note(RESULTS, dict(name="crowd", **found, seconds_to_end=round(time.monotonic() - begun, 1)))


if __name__ == "__main__": asyncio.run(main())
