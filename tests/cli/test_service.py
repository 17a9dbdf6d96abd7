"The service: bodies, refusals and rows in this process; departed clients, overruns and signals in others."
import json
import os
import re
import signal
import socket
import time

import pytest

from loflexmdm.cli.answers import Answers
from loflexmdm.cli.service import Counts, Door, bodies, service
from loflexmdm.models.pretrained import load
from loflexmdm.models.requests import EditRequest, SampleRequest
from loflexmdm.support.configs import comments_of
from loflexmdm.support.limits import Budget
from served import Direct, running, seconds_to_end
from service_load import workers_of

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'loflexmdm[app]'")
pytest.importorskip("prometheus_client", reason="prometheus-client is not installed: pip install 'loflexmdm[app]'")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

MODELS = "molecules-leads", "repair-text"
GROWN = dict(model="molecules-leads", prompts="*c1ccncc1", n=3, seed=1)


@pytest.fixture(scope="module")
def client():
    "A client of the service in this process."
    from starlette.testclient import TestClient
    workers = Direct(Answers(MODELS))
    models, counts = workers.target.describe_models(), Counts(workers)
    app = service(models, Budget(rows=256, states=10_000, seconds=20), counts, workers)
    door = Door(app, ["127.0.0.1"], ["proxy.example"], report=counts.report)
    with TestClient(door, base_url="http://127.0.0.1:7860", raise_server_exceptions=False) as client: yield client


@pytest.fixture
def post(client): return lambda name, /, **body: client.post(f"/v1/{name}", json=body)


@pytest.mark.parametrize("name, cls", [("sample", SampleRequest), ("fill", SampleRequest), ("edit", EditRequest)])
def test_a_body_has_every_setting_of_python_with_its_comment(name, cls):
    shown, comments = bodies()[name].model_json_schema()["properties"], comments_of(cls)
    own = {*comments} - {*cls.hidden, "batch_size"}
    assert own <= shown.keys() and {"model", "sampler", "temperature", "top_p"} <= shown.keys()
    assert {key: shown[key]["description"] for key in own} == {key: comments[key] for key in own}


def test_rows_are_those_of_python(post):
    found = post("sample", **GROWN).json()["rows"]
    python = load("molecules-leads").sample("*c1ccncc1", n=3, seed=1).rows()
    assert [row["text"] for row in found] == [row["text"] for row in python]
    found = post("edit", model="repair-text", texts="retrun the numebr", n=2, seed=0).json()["rows"]
    assert [row["text"] for row in found] == load("repair-text").edit("retrun the numebr", n=2, seed=0).texts
    found = post("score", model="molecules-leads", texts=["CCO", "Xx"], states=4).json()["rows"]
    assert found[0]["nats"] > 0 and found[1]["nats"] is None and "no token" in found[1]["reason"]
    found = post("score", model="molecules-leads", texts="CCO", states=4).json()["rows"]
    assert [row["text"] for row in found] == ["CCO"]


def test_every_input_has_its_row_or_its_reason(post):
    texts = "*c1ccncc1", "c1cc(", "*c1ccccc1"
    rows = post("sample", **GROWN | dict(prompts=texts, n=2)).json()["rows"]
    assert [row["input"] for row in rows] == [0, 0, 1, 2, 2] and "not a SMILES" in rows[2]["reason"]
    rows = post("edit", model="repair-text", texts=["retrun", "", "numebr"], seed=0).json()["rows"]
    assert [row["input"] for row in rows] == [0, 1, 2] and rows[1]["reason"] == "empty"


@pytest.mark.slow
def test_lines_are_the_rows_of_the_whole(client, post):
    whole = post("sample", **GROWN | dict(n=20)).json()
    lines = client.post("/v1/sample", json=GROWN | dict(n=20), headers=dict(accept="application/x-ndjson")).text
    *rows, last = map(json.loads, lines.splitlines())
    assert rows == whole["rows"] and (last["done"], last["rows"]) == (True, 20)
    wanted = GROWN | dict(prompts=["*c1ccncc1", "*c1ccccc1"], n=None, valid=2, nll=4)
    wanted = {key: value for key, value in wanted.items() if value is not None}
    lines = client.post("/v1/sample", json=wanted, headers=dict(accept="application/x-ndjson")).text
    *rows, last = map(json.loads, lines.splitlines())
    assert sorted(rows, key=lambda row: row["input"]) == post("sample", **wanted).json()["rows"]
    assert len(rows) == 4 and all("nll_bound" in row for row in rows)


def test_fillings_make_the_texts(post):
    rows = post("fill", model="molecules-leads", prompts="CC(=O)N...c1ccccc1", n=3, seed=0).json()
    assert [f"CC(=O)N{row['fillings'][0]}c1ccccc1" for row in rows["rows"]] == [row["text"] for row in rows["rows"]]
    [row] = post("fill", model="molecules-leads", prompts=[[*"CC", "...", "O"]], n=1, seed=0).json()["rows"]
    assert f"CC{row['fillings'][0]}O" == row["text"]
    assert post("fill", model="molecules-leads", prompts=["CCO", [*"CCO"]]).status_code == 422


@pytest.mark.parametrize("name, body, status, says", [
    ("sample", dict(n=3), 422, "model: is missing"),
    ("sample", GROWN | dict(n="x"), 422, "n='x': input should be a valid integer"),
    ("sample", GROWN | dict(n=0), 422, "n=0: must be at least 1"),
    ("sample", GROWN | dict(n=1000), 422, "n: 1,000 sequences; at most 256 are allowed"),
    ("sample", GROWN | dict(temprature=1), 422, "did you mean 'temperature'"),
    ("sample", GROWN | dict(temperature=-1), 422, "temperature"),
    ("sample", GROWN | dict(batch_size=4), 422, "batch_size: cannot be set by a call"),
    *(("sample", GROWN | {key: 1}, 422, f"{key}: cannot be set by a call") for key in ("self", "request", "record")),
    *(("sample", GROWN | {key: 1}, 422, f"{key}=1: unknown setting")
      for key in ("name", "caller", "budget", "settings")),
    ("sample", GROWN | dict(model="leads"), 422, "choose one of molecules-leads, repair-text"),
    ("sample", GROWN | dict(seconds=100), 422, "seconds: 100.0 seconds; at most 20 are allowed"),
    ("score", dict(model="molecules-leads", texts=["CCO"], states=10**9), 422, "at most 10,000 are allowed"),
    ("score", dict(model="molecules-leads", texts=[]), 422, "at least one"),
    ("score", dict(model="molecules-leads", texts=[None]), 422, "texts"),
    ("score", dict(model="molecules-leads", texts=["CCO"], seconds=1), 422, "'seconds': is not a field"),
    ("link", dict(model="molecules-leads", ends="*CC.*CC", top_p=.9), 422, "'top_p': is not a field"),
    ("edit", dict(model="molecules-leads", texts="CCO"), 422, "does not edit"),
    ("edit", dict(model="repair-text", texts="abc", keep="1-3"), 422, "locks every token"),
])
def test_what_is_wrong_is_one_line(post, name, body, status, says):
    answer = post(name, **body)
    assert answer.status_code == status and says in answer.json()["error"] and "\n" not in answer.json()["error"]
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("headers, status", [
    (dict(host="evil.example"), 400), (dict(origin="http://evil.example"), 403), (dict(origin="null"), 403),
    (dict(origin="http://127.0.0.1:3000"), 403), (dict(origin="http://127.0.0.1:7860"), 200),
    (dict(origin="https://proxy.example"), 200), (dict(host="proxy.example"), 200),
])
def test_who_may_send(client, headers, status):
    body = dict(model="molecules-leads", texts=["CCO"], states=2)
    assert client.post("/v1/score", json=body, headers=headers).status_code == status


def test_bodies_and_tokens(client, monkeypatch):
    monkeypatch.setenv("LOFLEXMDM_MAX_BODY", "1000")
    assert client.post("/v1/score", content=b"x" * 2000).status_code == 413
    parts = (b" " * 500 for _ in range(4))
    assert client.post("/v1/score", content=parts).status_code == 413
    for kind in "application/json", "text/plain":
        wrong = client.post("/v1/score", content=b"{", headers={"content-type": kind})
        assert wrong.status_code == 400 and "body: is not JSON" in wrong.json()["error"]
    monkeypatch.setattr(client.app, "token", "secret")
    assert client.get("/health").status_code == 200 and client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers=dict(authorization="Bearer secret")).status_code == 200
    assert client.get("/metrics", auth=("", "secret")).status_code == 200


@pytest.mark.parametrize("path, status", [
    ("/gradio_api/run/predict", 422), ("/gradio_api/reset", 422), ("/v1/sample", 500),
])
def test_a_call_that_the_page_cannot_take_is_one_line(path, status):
    from starlette.responses import JSONResponse
    from starlette.testclient import TestClient

    async def broken(scope, receive, send):
        await JSONResponse(dict(detail="a defect"), 500)(scope, receive, send)
        raise KeyError("fn_index")
    door = Door(broken, page=re.compile("POST /gradio_api/.*"), cookie="page=key")
    client = TestClient(door, raise_server_exceptions=status == 422, headers=dict(cookie="page=key"))
    answer = client.post(path, json=dict(data=[-1]))
    assert answer.status_code == status and ("open it anew" in answer.json().get("error", "")) == (status == 422)


def test_ids_log_and_metrics(client, capsys):
    answer = client.get("/v1/models", headers={"X-Request-ID": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1" and [m["model"] for m in answer.json()] == list(MODELS)
    assert client.get("/v1/models", headers={"X-Request-ID": "a b"}).headers["x-request-id"] != "a b"
    record = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (record["id"], record["path"], record["status"]) == ("mine-1", "/v1/models", 200)
    assert 'loflexmdm_requests_total{route="/v1/models",status="200"}' in client.get("/metrics").text
    assert client.get("/nowhere").status_code == 404 and 'route="/nowhere"' not in client.get("/metrics").text
    assert "number of sequences, per prompt" in client.get("/docs").text


@pytest.fixture(scope="module")
def server():
    with running("serve", *MODELS, "--workers", "2", "--seconds", "30") as (process, address): yield process, address


LARGE = dict(model="molecules-leads", n=2048)  # much work, before the seconds are over


@pytest.mark.slow
def test_a_departed_client_ends_its_call_and_holds_up_nobody(server):
    _, address = server

    def leave():
        with pytest.raises(httpx.TimeoutException): httpx.post(f"{address}/v1/sample", json=LARGE, timeout=1.0)

    def leave_a_stream():
        lines = dict(accept="application/x-ndjson")
        with httpx.stream("POST", f"{address}/v1/sample", json=LARGE, timeout=60, headers=lines) as answer:
            assert next(answer.iter_lines())

    for left in leave, leave_a_stream:
        left()
        begun = time.monotonic()
        assert httpx.post(f"{address}/v1/sample", json=GROWN, timeout=60).status_code == 200
        while "loflexmdm_running 0.0" not in httpx.get(f"{address}/metrics").text:
            assert time.monotonic() - begun < 20
            time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("sender, client", [("127.0.0.1", "203.0.113.7"), ("127.0.0.9", "127.0.0.9")])
def test_the_address_that_a_proxy_forwards_counts_where_the_proxy_is_trusted(server, sender, client):
    process, address = server
    headers = {"X-Forwarded-For": "203.0.113.7", "X-Request-ID": f"from-{sender}"}
    with httpx.Client(transport=httpx.HTTPTransport(local_address=sender)) as http:
        http.get(f"{address}/v1/models", headers=headers)
    record = next(record for record in map(json.loads, process.stdout) if record["id"] == headers["X-Request-ID"])
    assert record["client"] == client


@pytest.mark.slow
def test_a_killed_worker_is_replaced(server):
    process, address = server
    before = workers_of(process.pid)
    for pid in before: os.kill(pid, signal.SIGKILL)
    answers = [httpx.post(f"{address}/v1/sample", json=GROWN, timeout=60) for _ in range(3)]
    assert answers[-1].status_code == 200 and {a.status_code for a in answers} <= {200, 503}
    assert not before & workers_of(process.pid) and process.poll() is None


@pytest.mark.slow
def test_a_signal_ends_the_server_and_its_workers_within_three_seconds(number=signal.SIGTERM):
    with running("serve", "star-tiny") as (process, address):
        workers = workers_of(process.pid)
        held = socket.create_connection(re.match(r"http://(.*):(\d+)", address).groups())  # stays open
        assert workers and seconds_to_end(process, number) < 3
        held.close()
        assert process.returncode == 128 + number  # no worker, and no semaphore, is left to be cleared up
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
