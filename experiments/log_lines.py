"""Lines of a made-up log file: `python experiments/log_lines.py --lines 200000 --out runs/corpora/logs.txt`.

A line has a time, a level, a host, a part and a message with values, 116 characters on average. Times grow, hosts and
parts go together, and durations and sizes belong to their message, so there is something to learn at every distance.
`planted` makes lines of which some are odd in one of five ways."""
import argparse
import random
import re
from datetime import datetime, timedelta
from pathlib import Path

START = datetime(2024, 3, 1)
HOSTS = [f"{place}-{kind}-{i:02d}" for place in ("fra", "ams", "iad") for kind in ("web", "db", "queue", "cache")
         for i in range(1, 7)]
USERS = [f"{name}{i}" for name in ("mara", "jonas", "priya", "chen", "olga", "luis") for i in range(1, 40)]
KINDS = "orders users items search login reports/daily payments export".split()
PATHS = [f"/api/v{v}/{what}" for v in (1, 2) for what in KINDS]
TABLES = "orders users items sessions payments audit_log".split()
LEVELS = dict(INFO=80, WARN=13, ERROR=5, DEBUG=2)


def request(draw: random.Random) -> str:
    status = draw.choices((200, 201, 304, 404, 500), (80, 6, 6, 6, 2))[0]
    return (f"http.server: {draw.choice(('GET', 'GET', 'POST'))} {draw.choice(PATHS)} status={status} "
            f"bytes={int(draw.lognormvariate(7, 1.2))} took={draw.lognormvariate(3, 0.9):.1f}ms")


def query(draw: random.Random) -> str:
    table = draw.choice(TABLES)
    return (f"db.pool: query on {table} by {draw.choice(USERS)} returned {int(draw.lognormvariate(3, 1.5))} rows, "
            f"waited {draw.lognormvariate(1, 1):.2f}ms")


def job(draw: random.Random) -> str:
    return (f"queue.worker: job {draw.getrandbits(32):08x} of {draw.choice(('mail', 'resize', 'invoice', 'index'))} "
            f"finished, attempt {draw.choices((1, 2, 3), (90, 8, 2))[0]} of 3, {draw.lognormvariate(5, 1):.0f}ms")


def lookup(draw: random.Random) -> str:
    return (f"cache.shard: key session:{draw.choice(USERS)}:{draw.randrange(1000):03d} "
            f"{draw.choices(('hit', 'miss', 'expired'), (80, 15, 5))[0]}, {draw.randrange(20, 99)}% full")


MESSAGES = dict(web=request, db=query, queue=job, cache=lookup)


def line(draw: random.Random, at: datetime) -> str:
    "Return a line of a log."
    host = draw.choice(HOSTS)
    level = draw.choices(list(LEVELS), list(LEVELS.values()))[0]
    text = MESSAGES[host.split("-")[1]](draw)
    when = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
    return f"{when} {level:<5} {host} [pid {draw.randrange(300, 4000)}] {text}"


def lines(n: int, seed: int = 0) -> list[str]:
    "Return `n` lines in the order of their times."
    draw, at, out = random.Random(seed), START, []
    for _ in range(n):
        at += timedelta(seconds=draw.expovariate(2.0))
        out.append(line(draw, at))
    return out


def too_large(line: str, draw: random.Random) -> str:
    "A value a thousand times as large: the last number of the line with its unit."
    return re.sub(r"(?<![.\d])(\d+)(?=(\.\d+)?(ms|% full)$)", lambda m: str(1000 * max(1, int(m[1]))), line)


def wrong_host(line: str, draw: random.Random) -> str:
    "A host of another kind than the message's."
    [kind] = re.findall(r"-(web|db|queue|cache)-", line)
    return line.replace(f"-{kind}-", f"-{draw.choice([k for k in MESSAGES if k != kind])}-", 1)


def unknown_message(line: str, draw: random.Random) -> str:
    "A message that the log has never had."
    odd = ("kernel: out of memory, killed process {n} (java)", "sshd: failed password for root from 203.0.113.{k}",
           "systemd: unit backup.service entered failed state", "disk.health: /dev/sd{c} reallocated sectors {n}")
    told = draw.choice(odd).format(n=draw.randrange(100, 9999), k=draw.randrange(1, 255), c=draw.choice("abcd"))
    return line[:line.index("] ") + 2] + told


def cut_off(line: str, draw: random.Random) -> str:
    "A line that ends within its message."
    start = line.index("] ") + 2
    return line[:draw.randrange(start + 4, len(line) - 6)]


def misspelled(line: str, draw: random.Random) -> str:
    "Two neighbouring letters of a word of the message exchanged."
    start = line.index("] ") + 2
    places = [i for i in range(start, len(line) - 1) if line[i:i + 2].isalpha() and line[i] != line[i + 1]]
    i = draw.choice(places)
    return line[:i] + line[i + 1] + line[i] + line[i + 2:]


ODD = dict(value=too_large, host=wrong_host, message=unknown_message, cut=cut_off, letters=misspelled)


def planted(n: int, each: int, seed: int = 0) -> tuple[list[str], list[str]]:
    "Return `n` lines, `each` of every kind of anomaly among them, and their kinds, '' for the usual ones."
    found, draw = lines(n, seed), random.Random(seed)
    kinds = [""] * n
    places = draw.sample(range(n), each * len(ODD))
    for place, kind in zip(places, [kind for kind in ODD for _ in range(each)]):
        found[place], kinds[place] = ODD[kind](found[place], draw), kind
    return found, kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/corpora/logs.txt"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(lines(args.lines, args.seed)) + "\n", encoding="utf-8")


if __name__ == "__main__": main()
