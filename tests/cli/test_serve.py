"""`mlpengine serve`: answers are those of `predict`, and no request makes the service fail."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from mlpengine import Mlp, __version__
from mlpengine.core.system import EXIT_CODES
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.models.calibration import ClassSets, Residuals
from mlpengine.models.model import Model
from mlpengine.models.task import task_for
from mlpengine.nn.population import Population
from mlpengine.ops import REGISTRY
from mlpengine_cli.service import BODY_LIMIT, ROW_LIMIT, SMALL_BODY, service


@cache
def table() -> Table:
    """Return columns of every kind, with gaps."""
    g = np.random.default_rng(0)
    size, codes = g.normal(5, 2, 60), g.integers(-1, 3, 60).astype(np.int32)
    size[::9] = np.nan
    return Table(
        {
            "size": Column(size),
            "count": Column(g.integers(0, 9, 60) * 1.0),
            "flag": Column(g.integers(0, 2, 60) * 1.0, "boolean"),
            "zone": Column(codes, "text", ("east", "north", "west")),
            "year": Column(g.integers(2020, 2023, 60) * 1.0),
            "when": Column(1.5e9 + np.floor(g.random(60) * 1e8), "date"),
            "kind": Column(g.integers(0, 3, 60).astype(np.int32), "text", ("a", "b", "c")),
            "price": Column(g.normal(100, 9, 60)),
            "cost": Column(g.normal(10, 1, 60)),
            "yes": Column(g.integers(0, 2, 60) * 1.0),
        },
        "rows",
    )


MODELS = {
    "classes": {"target": "kind", "drop": ["price", "cost", "yes", "when"]},
    "numbers": {"target": "price", "drop": ["kind", "cost", "yes", "when"]},
    "dates": {"target": "kind", "drop": ["price", "cost", "yes"]},
    "two numbers": {"target": ["price", "cost"], "drop": ["kind", "yes"]},
    "labels": {"target": ["yes", "flag"], "task": "multilabel", "drop": ["kind", "price", "cost"]},
    "formulas": {
        "target": "price",
        "features": {"area": "size * cost", "span": "size * (when > 1.55e9)"},
        "drop": ["kind", "yes", "when"],
    },
    "no gaps": {"target": "kind", "missing": "error", "drop": ["size", "zone", "price", "when"]},
    "unbounded": {"target": "price", "drop": ["kind", "cost", "yes", "when"], "clip": "none"},
    "quantiles": {"target": "cost", "drop": ["kind", "price", "yes", "when"]},
}
LOSSES = {"classes": "softmax_cross_entropy", "numbers": "mse", "quantiles": "quantile"}
OPTIONS = {"quantiles": {"levels": (0.1, 0.5, 0.9)}}


@cache
def model(name: str) -> Model:
    """Return a model of random weights."""
    preprocessor = Preprocessor(**{"categorical": ["year"], "min_count": 1, **MODELS[name]})
    preprocessor.fit(table())
    usual = {"classification": "softmax_cross_entropy", "regression": "mse"}
    loss = LOSSES.get(name) or usual.get(preprocessor.task, "bce_with_logits")
    options = OPTIONS.get(name, {})
    outputs = task_for(preprocessor.target, REGISTRY[loss](**options)).outputs
    members = Population(Mlp([preprocessor.n_features, 4, outputs], seed=1), 2)
    g = np.random.default_rng(2)
    members.params[...] = g.normal(size=members.params.shape) * (1e3 if name == "unbounded" else 1)
    residuals = sets = None
    if name == "numbers":
        residuals = Residuals.of(g.normal(size=(50, 1)), g.normal(100, 9, (50, 1)))
    if name == "classes":
        sets = ClassSets.of(g.dirichlet([1, 1, 1], 50), g.integers(0, 3, 50))
    return Model(members[0], preprocessor, loss, options, [members], residuals=residuals, sets=sets)


def rows_of(name: str, count: int = 12) -> list[dict]:
    """Return rows of the table as JSON has them, of all columns but the target."""
    columns = {}
    for column in model(name).columns:
        cells = table()[column]
        texts = [cells.text(i) if not cells.missing[i] else None for i in range(60)]
        if cells.kind in ("number", "boolean"):
            texts = [text if text is None else json.loads(text) for text in texts]
        columns[column] = texts
    return [{name: cells[i % 60] for name, cells in columns.items()} for i in range(count)]


@cache
def application(name: str):
    return service(model(name), name)


def ask(name, body, query="", *, method="POST", path="/predict", kind="application/json"):
    """Return status, value and headers of a request to a service, whose errors are raised."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "headers": [(b"host", b"here"), (b"content-type", kind.encode())],
    }
    sent = []
    parts = [data[i : i + 65_536] for i in range(0, len(data), 65_536)] or [b""]

    async def receive():
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    async def call():
        await application(name)(scope, receive, send)

    asyncio.run(call())
    start, *bodies = sent
    text = b"".join(message["body"] for message in bodies)
    headers = dict(start["headers"])
    is_json = headers[b"content-type"] == b"application/json"
    return start["status"], json.loads(text) if is_json else text.decode(), headers


def description(name):
    return ask(name, b"", method="GET", path="/openapi.json")[1]


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_predict(name):
    ours, rows = model(name), rows_of(name)
    many = rows * (1 + SMALL_BODY // len(json.dumps(rows)))
    for asked, expected in ([rows[0]], rows[0]), (rows, rows), (many, many):
        expected = expected if isinstance(expected, list) else [expected]
        status, answer, _ = ask(name, asked if len(asked) > 1 else asked[0])
        assert status == 200, answer
        assert list(answer) == ["predictions", "warnings"]
        shown = answer["predictions"]
        given = {key: [one[key] for one in shown] for key in shown[0]}
        truth = dict(zip(ours.target, np.atleast_2d(ours.predict(expected).T), strict=False))
        if name == "quantiles":
            truth = ours.predict_columns(expected)
        for target, values in truth.items():
            got = given[target]
            if ours.preprocessor.task == "classification":
                assert got == values.tolist()
            else:
                np.testing.assert_allclose(got, values, rtol=1e-5)
        if ours.classes:
            chances = np.array([given[f"probability_{one}"] for one in ours.classes]).T
            np.testing.assert_allclose(chances, ours.predict_proba(expected), rtol=1e-5)


def test_intervals_and_sets_are_those_of_predict():
    rows = rows_of("numbers")
    answer = ask("numbers", rows, "interval=0.8")[1]["predictions"]
    low, high = model("numbers").predict_interval(rows, 0.8)
    np.testing.assert_allclose([one["price_low"] for one in answer], low, rtol=1e-5)
    np.testing.assert_allclose([one["price_high"] for one in answer], high, rtol=1e-5)
    rows = rows_of("classes")
    answer = ask("classes", rows, "set=0.5")[1]["predictions"]
    truth = model("classes").predict_set(rows, 0.5)
    sets = [[label for label in "abc" if inside["abc".index(label)]] for inside in truth]
    assert [one["kind_set"] for one in answer] == sets
    assert len({*map(len, sets)}) > 1


@pytest.mark.parametrize("name", MODELS)
def test_the_description_tells_which_rows_are_taken(name):
    whole = description(name)
    assert whole["openapi"].startswith("3.1")
    content = whole["paths"]["/predict"]["post"]["requestBody"]["content"]
    schema = content["application/json"]["schema"]["anyOf"][0]
    Draft202012Validator.check_schema(schema)
    row = Draft202012Validator(schema)
    assert list(schema["properties"]) == model(name).columns
    for good in rows_of(name, 2):
        row.validate(good)
        for column in schema["properties"]:
            for cell in ("text", 7, True, None, [1], {"a": 1}, 1e101, 10**400):
                taken = ask(name, {**good, column: cell})[0] == 200
                valid = row.is_valid({**good, column: cell})
                date = column == "when" and cell == "text"  # the schema cannot tell a date
                assert taken is (valid and not date), (column, cell)
            without = {key: cell for key, cell in good.items() if key != column}
            assert not row.is_valid(without)
            assert ask(name, without)[0] == 422
    post = whole["paths"]["/predict"]["post"]
    parameters = {one["name"] for one in post.get("parameters", [])}
    assert parameters == {"numbers": {"interval"}, "classes": {"set"}}.get(name, set())
    example = post["requestBody"]["content"]["application/json"]["example"]
    assert 2017 <= int(example.get("when", "2018")[:4]) <= 2020
    row.validate(example)
    assert ask(name, example)[0] == 200


GOOD = rows_of("classes")[0]
FORM = "row 1: must be an object of values by column, or a list of such rows, for example {"
WRONG = {
    "no JSON": (b"{", "", 400, "the body must be JSON"),
    "nested": (b"[" * 100_000, "", 400, "nested too deeply"),
    "too large": ({**GOOD, "size": 1e200}, "", 422, "'size': Input should be less than or equal"),
    "not UTF-8": (b'"\xff"', "", 400, "the body must be JSON"),
    "another form": ({"inputs": [[1, 2]]}, "", 422, FORM),
    "NaN": (json.dumps({**GOOD, "size": np.nan}).encode(), "", 422, "'size': Input should be a"),
    "another name": ({"sizes": 1, "count": 2}, "", 422, "column 'size': Field required - did"),
    "several cells": ([GOOD, {**GOOD, "size": "x", "flag": 3}], "", 422, "row 2, column 'size'"),
    "an option twice": (GOOD, "set=.8&set=.9", 422, "query: an option must not be repeated"),
    "twice": (b'{"size": 1, "size": 2}', "", 422, "'size' must not be repeated in an object (got"),
    "rows": ([GOOD] * (ROW_LIMIT + 1), "", 413, "at most 10000 items"),
    "bytes": (b" " * (BODY_LIMIT + 1), "", 413, "Content Too Large"),
    "a level": (GOOD, "set=0", 422, "'set': the level must be above 0 and below 1"),
    "another option": (GOOD, "sets=0.9", 422, "this model has set - did you mean 'set'?"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_told_why(case):
    body, query, status, detail = WRONG[case]
    got, answer, _ = ask("classes", body, query)
    assert got == status
    assert list(answer) == ["detail"]
    assert detail in answer["detail"]


def test_a_date_must_have_the_format_of_training():
    row = rows_of("dates")[0]
    status, answer, _ = ask("dates", [row, {**row, "when": "next week"}])
    assert status == 422
    assert "column 'when': a date is needed" in answer["detail"]


def test_a_prediction_that_is_not_finite_is_refused():
    row = {**rows_of("unbounded")[0], "size": -3e38, "count": 3e38}
    assert ask("numbers", row)[0] == 200
    status, answer, _ = ask("unbounded", row)
    assert status == 422
    assert "row 1: its prediction is not a finite number" in answer["detail"]
    assert "column 'size': 1 row far outside the training range" in answer["detail"]


@pytest.mark.parametrize("count", [1, 3])
def test_rows_unlike_those_of_training_are_predicted_with_warnings(count, caplog):
    row = {**GOOD, "zone": "south", "count": 400}
    _, answer, _ = ask("classes", [row] * count)
    texts = answer["warnings"]
    assert any("'zone'" in text and "'south'" in text for text in texts)
    assert any("'count'" in text and "such as 400 (0 to 8)" in text for text in texts)
    assert ask("classes", [row] * count)[1] == answer  # every time, and not in the log
    assert not caplog.records
    assert ask("classes", GOOD)[1]["warnings"] == []


def test_further_columns_are_ignored_and_no_rows_are_none():
    assert ask("classes", {**GOOD, "kind": "a", "other": [{}]}) == ask("classes", GOOD)
    assert ask("classes", [])[:2] == (200, {"predictions": [], "warnings": []})


def test_other_paths_methods_and_types():
    assert ask("classes", GOOD, kind="text/plain")[0] == 415
    assert ask("classes", GOOD, kind="x" * 20_000)[0] == 431
    assert ask("classes", GOOD, kind="Application/JSON; charset=utf-8")[0] == 200
    status, _, headers = ask("classes", GOOD, method="PUT")
    assert (status, headers[b"allow"]) == (405, b"POST")
    assert ask("classes", GOOD, path="/other")[0] == 404
    expected = {"status": "ok", "model": "classes", "predicts": ["kind"], "version": __version__}
    assert ask("classes", b"", method="GET", path="/health")[1] == expected
    _, text, headers = ask("classes", b"", method="GET", path="/metrics")
    assert headers[b"content-type"] == b"text/plain; version=0.0.4; charset=utf-8"
    assert "\nmlpengine_seconds_count " in text


@contextmanager
def running(folder, *options, setup=""):
    """Yield a process that serves a model on a free port, and the port; it runs `setup` first."""
    model("classes").save(folder / "m.safetensors")
    words = ["serve", "m.safetensors", "--port", "0", *options]
    code = f"from mlpengine_cli.main import main; main({words!r})"
    script = folder / "run.py"  # which workers import
    script.write_text(f"{setup}\nif __name__ == '__main__':\n    {code}\n")
    with subprocess.Popen(
        [sys.executable, script.name],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("serving m.safetensors at http://127.0.0.1:"), line
            yield process, int(line.split(":")[2].split()[0])
        finally:
            process.kill()


def request(connection, row, path="/predict"):
    """Return the value of the answer to a row, or to a GET of another path."""
    kind = {"content-type": "application/json"}
    if path == "/predict":
        connection.request("POST", path, json.dumps(row), kind)
    else:
        connection.request("GET", path)
    text = connection.getresponse().read().decode()
    return text if path == "/metrics" else json.loads(text)


def answer_of(port, row, path="/predict"):
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        return request(connection, row, path)


def ended(process):
    """Stop a service by SIGTERM; return what it wrote to stderr."""
    process.send_signal(signal.SIGTERM)
    err = process.communicate(timeout=20)[1]
    assert process.returncode == EXIT_CODES[signal.SIGTERM]
    return err


@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_lets_requests_under_way_end(workers, tmp_path):
    body = json.dumps([GOOD] * 300).encode()
    head = "POST /predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with running(tmp_path, "--workers", str(workers)) as (process, port):
        first = http.client.HTTPConnection("127.0.0.1", port)
        with closing(first), socket.create_connection(("127.0.0.1", port)) as connection:
            assert request(first, GOOD) == ask("classes", GOOD)[1]
            connection.sendall(head.encode() + body[:100])
            request(first, None, "/health")  # so that the half request has been read
            process.send_signal(signal.SIGTERM)
            connection.settimeout(20)
            connection.sendall(body[100:])
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert (answer.status, len(json.load(answer)["predictions"])) == (200, 300)
        assert process.wait(20) == EXIT_CODES[signal.SIGTERM]
        assert process.stderr.read() == ""


HALF = b"POST /predict HTTP/1.1\r\nHost: he"
IMPATIENT = "import mlpengine_cli.server as server; server.REQUEST_SECONDS = 0.3"


def test_a_connection_that_sends_no_whole_request_is_closed(tmp_path):
    whole = b"POST /predict HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    whole += b"Content-Length: 9\r\n\r\n{"
    after = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n" + HALF
    with running(tmp_path, setup=IMPATIENT) as (process, port), ExitStack() as stack:
        for sent in (b"", HALF, whole, after):
            connection = socket.create_connection(("127.0.0.1", port), 20)
            stack.enter_context(closing(connection))
            connection.sendall(sent)
            with suppress(ConnectionResetError):
                while connection.recv(10_000):
                    pass
        assert ended(process) == ""


def children(process):
    words = ["pgrep", "-P", str(process.pid)]
    return {*map(int, subprocess.run(words, capture_output=True, text=True).stdout.split())}


def test_a_worker_that_replaces_another_has_the_same_model(tmp_path):
    """Metrics count the requests of all workers, also of those that were killed."""
    with running(tmp_path, "--workers", "2", "--access-log") as (process, port):
        expected = answer_of(port, GOOD)
        model("no gaps").save(tmp_path / "m.safetensors")
        killed = children(process)
        assert len(killed) == 2
        for worker in killed:
            os.kill(worker, signal.SIGKILL)
            answers = [answer_of(port, GOOD) for _ in range(20)]  # waits for a worker
            assert answers == [expected] * 20
            (tmp_path / "m.safetensors").unlink(missing_ok=True)
        assert not children(process) & killed
        assert "\nmlpengine_seconds_count 41.0\n" in answer_of(port, None, "/metrics")
        lines = ended(process).splitlines()
        assert sum('"POST /predict HTTP/1.1" 200' in line for line in lines) == 41


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path):
    with running(tmp_path, "--workers", "2") as (process, port):
        answer_of(port, GOOD)
        process.kill()
        assert process.communicate(timeout=20) == ("", "")  # the ends of what workers write to


BUSY = """
import time
import mlpengine_cli.server as server
import mlpengine_cli.service as service
server.STOP_SECONDS = {}
service.Answers.answer = lambda *_, **__: time.sleep(100)
"""


@pytest.mark.parametrize(("workers", "seconds"), [(1, 0.2), (2, 100)])
def test_a_busy_thread_stops_no_signal(workers, seconds, tmp_path):
    """The time for requests under way ends it, or further signals do."""
    setup = BUSY.format(seconds)
    with (
        running(tmp_path, "--workers", str(workers), setup=setup) as (process, port),
        closing(http.client.HTTPConnection("127.0.0.1", port)) as connection,
    ):
        body = json.dumps([GOOD] * 300)
        connection.request("POST", "/predict", body, {"content-type": "application/json"})
        answer_of(port, None, "/health")
        process.send_signal(signal.SIGTERM)
        while seconds > 1 and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        assert process.wait(30) == EXIT_CODES[signal.SIGTERM]
        assert not children(process)


def test_the_page_loads_nothing_from_elsewhere():
    _, page, headers = ask("classes", b"", method="GET", path="/")
    assert headers[b"content-type"].startswith(b"text/html")
    assert "openapi.json" in page
    assert "://" not in page


def test_a_run_or_port_that_cannot_be_is_told(mlpengine, tmp_path):
    model("classes").save(tmp_path / "m.safetensors")
    assert "none: there is no such run or model file" in mlpengine("serve", "none").err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = mlpengine("serve", "m.safetensors", "--port", port)
    assert refused.code == 2
    assert refused.err.startswith(f"error: serve: 127.0.0.1, port {port}: ")
    assert "--port 0 takes a free one" in refused.err
    for host in ("a..b", "\u00e9" * 300):
        assert mlpengine("serve", "m.safetensors", "--port", 0, "--host", host).code == 2
