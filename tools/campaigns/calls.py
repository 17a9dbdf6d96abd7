"""Calls of a running app by strangers: bodies, states, depths and fragments without a bound, routes of the page,
clients that leave; and Ctrl-C while a page is open and works.

A call is survived if its answer is a row for each input, or one line with a status that is not 500, within the seconds
of the budget; a client that leaves, if its work ends and the next caller is answered."""
import json
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
from served import running, seconds_to_end
from service_load import workers_of

from campaigns.attacks import Tally
from campaigns.fuzz import VALUES, WORDS, mutated, mutated_json

MODELS = "molecules-leads", "repair-text"
BUDGET, PATIENCE = 5, 180  # seconds of a call in the app, and those for which a client waits on a busy machine
PLAIN = dict(model="molecules-leads", prompts="*c1ccncc1", n=1, seed=1)
GOOD = dict(
    sample=PLAIN, score=dict(model="molecules-leads", texts=["CCO", "c1ccccc1"], states=4),
    fill=dict(model="molecules-leads", prompts="CC(=O)N...c1ccccc1", n=2),
    edit=dict(model="repair-text", texts=["retrun the numebr"], n=2),
    link=dict(model="molecules-leads", ends="*c1ccncc1.*N1CCOCC1", n=2),
)
LARGE = dict(model="molecules-leads", n=256, nll=64, temperature=3.0)
ATOMS = [
    "C" * 14_999 + "*", "*" * 9000, "C" * 20_000 + "*", "*" + "C(" * 4000 + ")" * 4000, "*" + "C1CC" * 3000,
    "C.*" * 3000, "*" + "c1ccccc1" * 1500, "[C@H](*)(" * 1500,
]

DEEP = b"[", b'{"model":', b'{"texts":[', b'"\\u', b"9"


def body(rng: random.Random) -> tuple[str, bytes]:
    "A call and a body like a good one, with wild values, depths, or bytes cut and put in."
    name = rng.choice(list(GOOD))
    made, kind = dict(GOOD[name]), rng.randrange(6)
    if kind == 0: made = mutated_json(made, rng)
    elif kind == 1: made[rng.choice([*made, "temperature", "top_p", "valid", "unique", "rule", "tries"])] = rng.choice(
        [*VALUES, *WORDS])
    elif kind == 2: made[next(key for key in ("prompts", "texts", "ends") if key in made)] = rng.choice(ATOMS)
    elif kind == 3: return name, rng.choice(DEEP) * rng.choice([9, 900, 90_000])
    elif kind == 4: return name, mutated(json.dumps(made).encode(), rng)
    else: made |= {rng.choice(WORDS): rng.choice(VALUES) for _ in range(rng.randint(1, 4))}
    return name, json.dumps(made).encode()


def wrong_answer(answer: httpx.Response) -> str:
    "Return what is wrong about an answer, '' for nothing."
    text = answer.text[:300]
    try: found = answer.json()
    except ValueError: return f"{answer.status_code}, not JSON: {text}"
    if answer.status_code == 200: return "" if all("text" in row or "reason" in row for row in found["rows"]) else text
    if answer.status_code not in (400, 413, 422, 504): return f"{answer.status_code}: {text}"
    return "" if len(str(found.get("error", "")).splitlines()) == 1 else f"not one line: {text}"


def bodies(http: httpx.Client, rng: random.Random) -> tuple[str, str]:
    "Send a body; return what it was, and what is wrong."
    name, data = body(rng)
    kind = rng.choice(["application/json"] * 9 + ["text/plain"])
    answer = http.post(f"/v1/{name}", content=data, headers={"content-type": kind})
    return f"{name} {data[:200]!r}", wrong_answer(answer)


def states(http: httpx.Client, rng: random.Random) -> tuple[str, str]:
    "Ask for more states, rows, seconds or tries than anybody should have; also ask for as much as is allowed."
    n = rng.choice([10**9, 10**6, 16_384, 2**31, 2**63, 10**30, -1, 0])
    name, more = rng.choice([
        ("score", dict(states=n)), ("score", dict(texts=["CCO"] * rng.choice([1, 256, 300]), states=n)),
        ("sample", dict(n=n)), ("sample", dict(nll=n)), ("sample", dict(valid=n)), ("sample", dict(valid=9, tries=n)),
        ("sample", dict(seconds=n)), ("edit", dict(n=n)), ("link", dict(n=n)), ("fill", dict(n=n, nll=64)),
        ("sample", dict(rule="contains:N", particles=n)), ("sample", dict(steps=n, sampler="tau")),
    ])
    made = {key: value for key, value in (GOOD[name] | more).items() if not (key == "n" and "valid" in more)}
    return f"{name} {made}", wrong_answer(http.post(f"/v1/{name}", json=made))


ROUTES = "queue/join", "run/predict", "cancel", "reset", "upload", "call/molecule", "queue/data?session_hash=b"


def routes(http: httpx.Client, rng: random.Random) -> tuple[str, str]:
    "Ask for a route of the page, or one that it lacks, with some data; an answer of 500 is wrong."
    http.get("/")
    data = [rng.choice([*VALUES[:-1], *WORDS[:20], *ATOMS]) for _ in range(rng.randrange(16))]
    sent = dict(data=data, fn_index=rng.randrange(-1, 30), session_hash="a", trigger_id=1)
    path = rng.choice(ROUTES)
    as_json = dict(content=json.dumps(sent), headers={"content-type": "application/json"}, timeout=PATIENCE)
    method, more = ("GET", dict(timeout=5)) if "?" in path else ("POST", as_json)
    try: answer = http.request(method, f"/gradio_api/{path}", **more)
    except (httpx.ReadTimeout, httpx.RemoteProtocolError) as e:  # a stream of a page without calls stays open or is cut
        return path, "" if method == "GET" else type(e).__name__
    failed = answer.status_code == 500 and path != "cancel"  # where gradio itself answers so to a call that is unknown
    return f"{path} {str(sent)[:200]}", f"500: {answer.text[:200]}" if failed else ""


def departs(http: httpx.Client, rng: random.Random) -> tuple[str, str]:
    "Leave during much work, or during its lines; return what is wrong."
    patience, made = rng.uniform(0.05, 1.5), dict(LARGE, seed=rng.randrange(9))
    name = rng.choice(["sample", "score", "fill"])
    if name == "score": made = dict(model=made["model"], texts=["c1ccccc1" * 4] * 256, states=64)
    if name == "fill": made = dict(model=made["model"], prompts=["..."] * 200, nll=64)
    lines = dict(accept="application/x-ndjson") if rng.random() < 0.5 else {}
    try:
        with http.stream("POST", f"/v1/{name}", json=made, headers=lines, timeout=patience) as answer:
            for _ in zip(range(rng.randrange(3)), answer.iter_lines()): pass
    except httpx.TimeoutException: pass
    begun = time.monotonic()
    while "loflexmdm_running 0.0" not in http.get("/metrics").text:
        if time.monotonic() - begun > PATIENCE: return name, "its work goes on"
        time.sleep(0.1)
    return name, ""


KINDS: dict[str, Callable] = {"bodies": bodies, "states": states, "routes": routes, "departing clients": departs}


def resident(pids: list[int]) -> int:
    "Return the memory of processes, in MB."
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024


def interrupt(process, address: str) -> str:
    "Send SIGINT while a page is open and a call runs; return what is wrong."
    load = max(1, os.getloadavg()[0] / (os.cpu_count() or 1))
    client = partial(httpx.Client, base_url=address, timeout=PATIENCE)
    with client() as page, client(headers=dict(accept="application/x-ndjson")) as other:
        page.get("/")
        with page.stream("GET", "/gradio_api/heartbeat/abc") as beat, other.stream("POST", "/v1/sample", json=LARGE):
            if beat.status_code != 200: return f"heartbeat: {beat.status_code}"
            workers, took = workers_of(process.pid), seconds_to_end(process, signal.SIGINT)
    left = [pid for pid in workers if state_of(pid) not in "Z"]
    if left: return f"workers stay: {left}"
    return "" if took < 3 * load else f"{took:.1f} s, each core having {load:.1f} processes"


def state_of(pid: int) -> str:
    "Return the state of a process, Z for one that has ended, '' for none."
    try: return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError: return ""


def campaign(tally: Tally, seed: int, numbers: range, most: int = 4000):
    "Calls of one app, which must then answer a plain call, hold at most `most` MB, and end by Ctrl-C."
    with running("app", *MODELS, "--seconds", str(BUDGET), "--rows", "256") as (process, address):
        with httpx.Client(base_url=address, timeout=PATIENCE) as http:
            for i in numbers:
                rng, kind = random.Random(f"{seed} call {i}"), list(KINDS)[i % len(KINDS)]
                try: what, wrong = KINDS[kind](http, rng)
                except httpx.HTTPError as e: what, wrong = "", f"{type(e).__name__}: {e}"
                tally.note(kind, f"seed {seed}, number {i}: {what}", wrong)
            answer = http.post("/v1/sample", json=PLAIN)
            wrong = f"{answer.status_code}: {answer.text[:200]}" if answer.status_code != 200 else ""
            tally.note("a plain call afterwards", f"seed {seed}, {numbers}", wrong)
            used = resident([process.pid, *workers_of(process.pid)])
            tally.note("memory", f"seed {seed}, {numbers}", f"{used:,} MB" if used > most else "")
        tally.note("Ctrl-C with an open page", f"seed {seed}, {numbers}", interrupt(process, address))
