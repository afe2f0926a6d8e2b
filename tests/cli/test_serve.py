"""`mlpengine serve`: answers are those of `predict`, and no request makes the service fail."""

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import mlpengine_cli.serve as serve_command
from mlpengine import Mlp, __version__
from mlpengine.core.system import EXIT_CODES
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.models.calibration import ClassSets, Residuals
from mlpengine.models.model import Model
from mlpengine.models.task import task_for
from mlpengine.nn.population import Population
from mlpengine.ops import REGISTRY
from mlpengine_cli.service import SMALL_BODY, service

MAX_ROWS, MAX_BYTES = 2_000, 400_000


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
    "formulas": {"target": "price", "features": {"area": "size * cost"}, "drop": ["kind", "yes"]},
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
    return Model(members[0], preprocessor, loss, options, members, residuals, sets=sets)


def rows_of(name: str, count: int = 12) -> list[dict]:
    """Return rows of the table as JSON has them, of all columns but the target."""
    columns = {}
    for column in model(name).columns:
        cells = table()[column]
        texts = [cells.cell(i) if not cells.missing[i] else None for i in range(60)]
        if cells.kind in ("number", "boolean"):
            texts = [text if text is None else json.loads(text) for text in texts]
        columns[column] = texts
    return [{name: cells[i % 60] for name, cells in columns.items()} for i in range(count)]


@cache
def application(name: str):
    return service(model(name), name, max_rows=MAX_ROWS, max_bytes=MAX_BYTES)


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
    return start["status"], json.loads(text), dict(start["headers"])


def description(name):
    return ask(name, b"", method="GET", path="/openapi.json")[1]


def validator(name, part):
    whole = description(name)
    return Draft202012Validator({"$ref": f"#/components/schemas/{part}", **whole})


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_predict(name):
    ours, rows = model(name), rows_of(name)
    many = rows * (1 + SMALL_BODY // len(json.dumps(rows)))
    for asked, expected in ([rows[0]], rows[0]), (rows, rows), (many, many):
        expected = expected if isinstance(expected, list) else [expected]
        status, answer, _ = ask(name, asked if len(asked) > 1 else asked[0])
        assert status == 200, answer
        assert not list(validator(name, "Answer").iter_errors(answer))
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
    for schema in whole["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    row = validator(name, "Row")
    properties = whole["components"]["schemas"]["Row"]["properties"]
    assert list(properties) == model(name).columns
    for good in rows_of(name, 2):
        row.validate(good)
        for column in properties:
            for cell in ("text", 7, True, None, [1], {"a": 1}, 1e101, 10**400):
                taken = ask(name, {**good, column: cell})[0] == 200
                valid = row.is_valid({**good, column: cell})
                date = column == "when" and cell == "text"  # the schema cannot tell a date
                assert taken is (valid and not date), (column, cell)
            without = {key: cell for key, cell in good.items() if key != column}
            assert not row.is_valid(without)
            assert ask(name, without)[0] == 422
    parameters = {one["name"] for one in whole["paths"]["/predict"]["post"]["parameters"]}
    assert parameters == {"numbers": {"interval"}, "classes": {"set"}}.get(name, set())


def test_the_description_shows_levels_and_ranges():
    properties = description("classes")["components"]["schemas"]["Row"]["properties"]
    assert properties["zone"]["anyOf"][0] == {"enum": ["east", "north", "west"]}
    assert properties["year"]["anyOf"][0] == {"enum": [2020, 2021, 2022]}
    assert properties["count"]["description"] == "Trained on 0 to 8."
    assert {"type": "null"} in properties["size"]["anyOf"]
    assert {"type": "null"} not in description("no gaps")["components"]["schemas"]["Row"][
        "properties"
    ]["count"].get("anyOf", [])
    for one in properties.values():
        assert all(Draft202012Validator(one).is_valid(cell) for cell in one.get("examples", []))


GOOD = rows_of("classes")[0]
WRONG = {
    "no JSON": (b"{", "", 400, "the body must be JSON"),
    "nothing": (b"", "", 400, "the body must be JSON"),
    "NaN": (b'{"size": NaN}', "", 400, "NaN is no number of JSON; null is a missing cell"),
    "not UTF-8": (b'"\xff"', "", 400, "the body must be JSON"),
    "nested": (b"[" * 100_000, "", 400, "nested too deeply"),
    "nested in a cell": (b'{"size":' + b"[" * 900 + b"]" * 900 + b"}", "", 422, "got a list"),
    "digits": (b"1" * 10_000, "", 400, "the body must be JSON"),
    "a number": (b"1", "", 422, "row 1: must be an object of cells by column (got 1)"),
    "a list in a list": ([GOOD, []], "", 422, "row 2: must be an object"),
    "a text": ({**GOOD, "size": "4"}, "", 422, "'size': must be a number (got \"4\"); write it"),
    "a number for a text": ({**GOOD, "zone": 4}, "", 422, "'zone': must be a text (got 4); write"),
    "a yes": ({**GOOD, "flag": "yes"}, "", 422, "'flag': must be true or false (got \"yes\")"),
    "too large": (
        json.dumps({**GOOD, "size": 0}).replace('"size": 0', '"size": 1e999').encode(),
        "",
        422,
        "'size': must be within 1e+100",
    ),
    "no column": ({"sizes": 1}, "", 422, "'size': must be there; null is a missing cell - did you"),
    "twice": (b'{"size": 1, "size": 2}', "", 422, "column 'size' must be there once"),
    "a surrogate": (b'{"size": "\\ud800"}', "", 422, "must be a number"),
    "rows": ([GOOD] * (MAX_ROWS + 1), "", 413, "at most 2,000 rows are predicted at once"),
    "bytes": (b" " * (MAX_BYTES + 1), "", 413, "at most 400,000 bytes"),
    "a level": (GOOD, "set=2", 422, "set: the level must be a number between 0 and 1"),
    "a level of no number": (GOOD, "set=much", 422, "set: must be a number (got 'much')"),
    "another option": (GOOD, "sets=0.9", 422, "'sets' is unknown (this model has set) - did you"),
    "an interval of classes": (GOOD, "interval=0.9", 422, "'interval' is unknown"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_told_why(case):
    body, query, status, detail = WRONG[case]
    got, answer, headers = ask("classes", body, query)
    assert (got, answer["status"]) == (status, status)
    assert detail in answer["detail"]
    assert headers[b"content-type"] == b"application/problem+json"
    assert not list(validator("classes", "Problem").iter_errors(answer))


def test_every_wrong_cell_is_named():
    rows = [GOOD, {**GOOD, "size": "x", "flag": 3}, {**GOOD, "zone": False}]
    _, answer, _ = ask("classes", rows)
    cells = [(one["row"], one["column"]) for one in answer["errors"]]
    assert cells == [(2, "size"), (2, "flag"), (3, "zone")]
    assert answer["detail"].endswith("(and 2 other cells)")
    _, answer, _ = ask("classes", [{}] * 100)
    assert len(answer["errors"]) == 20


def test_a_date_must_be_spelled_as_in_training():
    row = rows_of("dates")[0]
    status, answer, _ = ask("dates", [row, {**row, "when": "next week"}])
    assert status == 422
    assert (
        "column 'when': a date is needed, spelled as in training ('next week')" in answer["detail"]
    )


def test_a_prediction_that_is_not_finite_is_refused():
    row = {**rows_of("unbounded")[0], "size": -3e38, "count": 3e38}
    assert ask("numbers", row)[0] == 200
    status, answer, _ = ask("unbounded", row)
    assert status == 422
    assert "row 1: its prediction is not a finite number" in answer["detail"]
    assert "column 'size': 1 row far outside those trained on" in answer["detail"]


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
    assert ask("classes", GOOD, kind="Application/JSON; charset=utf-8")[0] == 200
    status, answer, headers = ask("classes", GOOD, method="PUT")
    assert (status, headers[b"allow"]) == (405, b"POST")
    assert "there is POST /predict" in answer["detail"]
    assert ask("classes", GOOD, path="/other")[0] == 404
    health = ask("classes", b"", method="GET", path="/health")[1]
    expected = {"status": "ok", "model": "classes", "predicts": ["kind"], "version": __version__}
    assert health == expected


CELLS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
NAMES = st.sampled_from(model("dates").columns)


@pytest.mark.no_cover
@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.binary(max_size=60)
    | CELLS.map(lambda value: json.dumps(value).encode())
    | st.lists(
        st.dictionaries(NAMES, CELLS, max_size=3).map(lambda row: rows_of("dates")[0] | row),
        max_size=3,
    ).map(lambda rows: json.dumps(rows).encode())
)
def test_no_body_makes_the_service_fail(body):
    assert ask("dates", body)[0] in (200, 400, 422)  # an error of ours would be raised


@contextmanager
def running(folder, *options):
    """Yield a process that serves a model on a free port, and the port."""
    model("classes").save(folder / "m.safetensors")
    words = ["serve", "m.safetensors", "--port", "0", *options]
    code = f"from mlpengine_cli.main import main; main({words!r})"
    script = folder / "run.py"  # which workers import
    script.write_text(f"if __name__ == '__main__':\n    {code}\n")
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


@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_lets_requests_under_way_end(workers, tmp_path):
    body = json.dumps([GOOD] * 300).encode()
    head = "POST /predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with running(tmp_path, "--workers", str(workers)) as (process, port):
        first = http.client.HTTPConnection("127.0.0.1", port)
        with closing(first), socket.create_connection(("127.0.0.1", port)) as connection:
            first.request(
                "POST", "/predict", json.dumps(GOOD), {"content-type": "application/json"}
            )
            assert json.load(first.getresponse()) == ask("classes", GOOD)[1]
            connection.sendall(head.encode() + body[:100])
            first.request("GET", "/health")  # so that the half request has been read
            first.getresponse().read()
            process.send_signal(signal.SIGTERM)
            connection.settimeout(20)
            connection.sendall(body[100:])
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert answer.status == 200
            assert len(json.load(answer)["predictions"]) == 300
        assert process.wait(20) == EXIT_CODES[signal.SIGTERM]
        assert process.stderr.read() == ""


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path):
    with running(tmp_path, "--workers", "2") as (process, port):
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
        process.kill()
        assert process.communicate(timeout=20) == ("", "")  # the ends of what workers write to


def test_a_second_signal_ends_the_workers_too(tmp_path):
    """Before, they went on with the requests under way for up to 30 seconds."""
    head = "POST /predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    head += "Content-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    with (
        running(tmp_path, "--workers", "2") as (process, port),
        closing(socket.create_connection(("127.0.0.1", port), 20)) as connection,
    ):
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100")  # a worker waits for the body
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in {EXIT_CODES[signal.SIGTERM], EXIT_CODES[signal.SIGINT]}
        assert process.communicate(timeout=20) == ("", "")  # of the workers, too


def test_a_run_or_port_that_cannot_be_is_told(mlpengine, tmp_path):
    model("classes").save(tmp_path / "m.safetensors")
    assert "none: there is no such run or model file" in mlpengine("serve", "none").err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = mlpengine("serve", "m.safetensors", "--port", port)
    assert refused.code == 2
    assert refused.err.startswith(f"error: serve: 127.0.0.1, port {port}: ")
    assert "--port 0 takes a free one" in refused.err


def test_it_is_bound_to_loopback_unless_told():
    options = {option.name: option for option in serve_command.command.params}
    assert options["host"].default == "127.0.0.1"
