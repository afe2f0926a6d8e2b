"""Predictions over HTTP: the FastAPI application of one model."""

import asyncio
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, FailFast, Field, TypeAdapter, ValidationError, create_model

from mlpengine import __version__
from mlpengine.core.errors import MlpEngineError, importing
from mlpengine.core.wording import cut, quoted, suggestion
from mlpengine.data.features.drift import NewRows
from mlpengine.models.model import Model

from .predict import Sure, output_columns
from .row_model import row_model
from .tables import records

with importing("mlpengine serve", "serve"):
    import prometheus_client as prometheus
    from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from prometheus_client.multiprocess import MultiProcessCollector
    from starlette.requests import ClientDisconnect

ROW_LIMIT, BODY_LIMIT, HEADER_LIMIT = 10_000, 8_000_000, 1 << 14
"""Maximum rows and bytes of the body of a request, and maximum bytes of its headers."""

SMALL_BODY = 1 << 14
"""Maximum bytes of a request body that is answered in the event loop.

Larger bodies are answered in one thread, so that small bodies do not wait for large bodies."""

CELLS_TOLD, NAMES_COMPARED = 20, 100
"""Maximum wrong values that an error lists, and maximum unknown names that it checks for typos."""

PAGE = Path(__file__).with_name("service.html")


class Answer(BaseModel):
    """The predictions of the rows, in the order of the rows, and warnings about drift."""

    predictions: list[dict[str, Any]]
    warnings: list[str]


class Refusal(BaseModel):
    """The reason why a request is not answered."""

    detail: str


class Answers:
    """Makes the answers to JSON requests: the predictions of a model."""

    def __init__(self, model: Model) -> None:
        self.row = row_model(model.preprocessor)
        fields = self.row.model_fields.values()
        self.example = {str(field.alias): (field.examples or [None])[0] for field in fields}
        rows: Any = list[self.row]  # type: ignore[name-defined]
        self._rows = TypeAdapter(Annotated[rows, FailFast(), Field(max_length=ROW_LIMIT)])
        self._model = model
        self._one_row = model.row_predictor()

    def answer(self, body: bytes, sure: Sure, *, at_once: bool) -> bytes:
        """Return the JSON answer to a body.

        `at_once` means a call in the event loop; then a single row takes a faster path.
        """
        value = _parsed(body)
        try:
            given = self._rows.validate_python(value if isinstance(value, list) else [value])
        except ValidationError as error:
            raise self._refusal(error) from None
        rows = [[*row.__dict__.values()] for row in given]
        if not rows:
            return b'{"predictions":[],"warnings":[]}'
        output = None
        if at_once and len(rows) == 1:
            output = self._one_row.output_of(dict(zip(self.example, rows[0], strict=True)))
            warnings = self._one_row.warnings()
        if output is None:
            cells = zip(self.example, map(list, zip(*rows, strict=True)), strict=True)
            table = self._model.table(dict(cells))
            output = self._model.forward(self._model.preprocessor.features_of(table))
            warnings = NewRows(self._model.preprocessor).add(table).lines()
        columns, numbers = output_columns(self._model, output, sure)
        if not np.isfinite(numbers).all():
            row = int(np.flatnonzero(~np.isfinite(numbers).all(axis=1))[0])
            why = "; ".join([f"row {row + 1}: its prediction is not a finite number", *warnings])
            raise HTTPException(422, why)
        answer = {"predictions": records(columns), "warnings": warnings}
        return json.dumps(answer, separators=(",", ":"), allow_nan=False).encode()

    def _refusal(self, error: ValidationError) -> HTTPException:
        """Return the error for a wrong number of rows, or for the first wrong row."""
        faults = error.errors(include_url=False)
        first, path = faults[0], faults[0]["loc"]
        if first["type"] == "too_long":
            return HTTPException(413, f"{first['msg']}; send several requests")
        row = int(path[0]) + 1
        missing = sum(fault["type"] == "missing" for fault in faults)
        if len(path) == 1 or missing == len(self.example):
            form = "must be an object of values by column, or a list of such rows, for example"
            return HTTPException(422, f"row {row}: {form} {json.dumps(self.example)}")
        texts, others = [], set[str]()
        for fault in [one for one in faults if one["type"] == "missing"][:1]:
            others = set(islice(fault["input"].keys() - self.example.keys(), NAMES_COMPARED))
        for fault in faults[:CELLS_TOLD]:
            column, cell = str(fault["loc"][1]), fault["input"]
            shown = f" (got {cut(json.dumps(cell))})" if not isinstance(cell, dict | list) else ""
            shown = suggestion(column, others) if fault["type"] == "missing" else shown
            texts.append(f"column {column!r}: {fault['msg']}{shown}")
        return HTTPException(422, f"row {row}, {'; '.join(texts)}")


def service(model: Model, name: str) -> FastAPI:
    """Return the application of a model; `name` is the model's name on the pages."""
    answers, thread = Answers(model), ThreadPoolExecutor(1)
    counts = prometheus.CollectorRegistry()
    seconds = prometheus.Histogram("mlpengine_seconds", "Seconds of a request", registry=counts)
    row = answers.row.model_json_schema()
    rows = {"type": "array", "items": row, "maxItems": ROW_LIMIT}
    content = {"application/json": {"schema": {"anyOf": [row, rows]}, "example": answers.example}}
    level = (float | None, Field(None, gt=0, lt=1, description="Share of new true values inside."))
    kept = {"interval": model.residuals, "set": model.sets}
    options: Any = {option: level for option, one in kept.items() if one is not None}
    levels = create_model("Levels", __config__={"extra": "forbid"}, **options)
    app = FastAPI(
        title=name,
        version=__version__,
        description=repr(model),
        docs_url=None,  # FastAPI's page loads scripts from the network
        redoc_url=None,
        max_body_size=BODY_LIMIT,
        dependencies=[Depends(_check_headers)],
    )

    @app.post(
        "/predict",
        response_model=Answer,
        responses={"4XX": {"model": Refusal}},
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def predict(request: Request, query: Annotated[levels, Query()]) -> Response:  # type: ignore[valid-type]
        """Predict a row or a list of rows."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, f"Content-Type must be application/json (got {quoted(kind)})")
        given = request.query_params
        if len(given.multi_items()) > len(given):
            raise HTTPException(422, "query: an option must not be repeated")
        sure = Sure(getattr(query, "interval", None), getattr(query, "set", None))
        body = await request.body()
        with seconds.time():
            if len(body) <= SMALL_BODY:
                answer = answers.answer(body, sure, at_once=True)
            else:
                later = partial(answers.answer, body, sure, at_once=False)
                answer = await asyncio.get_running_loop().run_in_executor(thread, later)
        return Response(answer, media_type="application/json")

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Report that the service runs, and its version."""
        return {"status": "ok", "model": name, "predicts": model.predicts, "version": __version__}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        shown = counts
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            shown = prometheus.CollectorRegistry()
            MultiProcessCollector(shown)  # type: ignore[no-untyped-call]  # sum over all workers
        return Response(prometheus.generate_latest(shown), media_type="text/plain; version=0.0.4")

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def page() -> Response:
        return Response(PAGE.read_bytes(), media_type="text/html")

    @app.exception_handler(RequestValidationError)
    async def on_query(_: Request, error: RequestValidationError) -> Response:
        fault, known = error.errors()[0], levels.model_fields
        option = str(fault["loc"][-1])
        told = f"the level must be above 0 and below 1 (got {quoted(fault['input'])})"
        if option not in known:
            told = f"this model has {', '.join(known) or 'no options'}{suggestion(option, known)}"
        return JSONResponse({"detail": f"query {quoted(option)}: {told}"}, 422)

    @app.exception_handler(ClientDisconnect)
    async def on_lost_client(*_: object) -> Response:
        return Response(status_code=400)  # nobody reads it

    @app.exception_handler(MlpEngineError)
    async def on_bad_rows(_: Request, error: MlpEngineError) -> Response:
        return JSONResponse({"detail": str(error)}, 422)

    return app


async def _check_headers(request: Request) -> None:
    if sum(map(len, chain.from_iterable(request.headers.raw))) > HEADER_LIMIT:
        raise HTTPException(431, f"the headers must have at most {HEADER_LIMIT:,} bytes")


def _parsed(body: bytes) -> Any:
    """Parse a JSON body; a name that occurs twice in an object is an error."""
    try:
        return json.loads(body, object_pairs_hook=_object)
    except RecursionError:
        raise HTTPException(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise HTTPException(400, f"the body must be JSON ({error})") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        ((name, count),) = Counter(name for name, _ in pairs).most_common(1)
        raise HTTPException(
            422, f"{quoted(name)} must not be repeated in an object (got {count:,})"
        )
    return value
