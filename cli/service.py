"""Predictions over HTTP: an ASGI application for one model.

Rows come and go as JSON.  What is wrong with a request is told as RFC 9457 has it, "Problem Details
for HTTP APIs".
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn

import numpy as np

from mlpengine import __version__
from mlpengine.core.errors import MlpEngineError, importing
from mlpengine.core.wording import plural, suggestion
from mlpengine.data.features.unlike import NewRows
from mlpengine.models.calibration import checked_level
from mlpengine.models.model import Model
from mlpengine.models.row_predictor import RowPredictor

from .openapi import document
from .predict import Sure, output_columns
from .row_types import CellProblem, cell_types, problems
from .tables import plain_column

with importing("mlpengine serve", "serve"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route

SMALL_BODY = 1 << 14
"""Bytes of a request that is answered at once; larger ones have a thread, one after another, so
that small ones do not wait for them."""

BODY_SECONDS = 30
"""So long a client may take to send a request."""

PATHS = "POST /predict, GET /health, GET /openapi.json"


class _RefusedError(Exception):
    """A request that is not answered: the status of HTTP, the reason, and cells at fault."""

    def __init__(self, status: int, detail: str, cells: Sequence[CellProblem] = ()) -> None:
        super().__init__(detail)
        self.status, self.detail, self.cells = status, detail, cells


class _Answers:
    """What a model answers to the bodies of requests."""

    def __init__(self, model: Model, max_rows: int) -> None:
        self._model, self._max_rows = model, max_rows
        self._types = cell_types(model.preprocessor)
        self._levels = {"interval": model.residuals, "set": model.sets}
        self._levels = {name: kept for name, kept in self._levels.items() if kept is not None}
        self._one_row = RowPredictor(model.networks, model.preprocessor, model.mean.combine)

    def sure(self, query: Mapping[str, str]) -> Sure:
        """Return the levels of intervals and sets that the query of an address asks for."""
        levels: dict[str, float] = {}
        for name, text in query.items():
            if name not in self._levels:
                known = ", ".join(self._levels) or "none"
                near = suggestion(name, self._levels)
                raise _RefusedError(
                    422, f"query: {name!r:.60} is unknown (this model has {known}){near}"
                )
            try:
                levels[name] = float(text)
            except ValueError:
                raise _RefusedError(422, f"{name}: must be a number (got {text!r:.60})") from None
            checked_level(levels[name], name)
        return Sure(levels.get("interval"), levels.get("set"))

    def answer(self, body: bytes, sure: Sure, *, at_once: bool) -> bytes:
        """Return the JSON of the predictions of the rows in a body.

        `at_once` tells that no other thread is here: one row then takes buffers of its own.
        """
        rows = _parsed(body)
        rows = rows if isinstance(rows, list) else [rows]
        if len(rows) > self._max_rows:
            limit = plural(self._max_rows, "row")
            text = (
                f"at most {limit} are predicted at once (got {len(rows):,}); send several requests"
            )
            raise _RefusedError(413, text)
        if wrong := problems(self._types, rows):
            first = wrong[0]
            where = f"row {first.row}" + (f", column {first.column!r}" if first.column else "")
            more = f" (and {plural(len(wrong) - 1, 'other cell')})" if len(wrong) > 1 else ""
            raise _RefusedError(422, f"{where}: {first.detail}{more}", wrong)
        output = self._one_row.output_of(rows) if at_once and rows else None
        if output is not None:
            warnings = self._one_row.unlike()
        elif rows:
            columns = {one.column: [row[one.column] for row in rows] for one in self._types}
            table = self._model.table(columns)
            output = self._model.forward(self._model.preprocessor.features_of(table))
            warnings = NewRows(self._model.preprocessor).add(table).lines()
        else:
            return b'{"predictions":[],"warnings":[]}'
        columns, numbers = output_columns(self._model, output, sure)
        if not np.isfinite(numbers).all():
            row = int(np.flatnonzero(~np.isfinite(numbers).all(axis=1))[0])
            why = f"; {'; '.join(warnings)}" if warnings else ""
            raise _RefusedError(422, f"row {row + 1}: its prediction is not a finite number{why}")
        values = zip(*map(plain_column, columns.values()), strict=True)
        predictions = [dict(zip(columns, record, strict=True)) for record in values]
        return _json({"predictions": predictions, "warnings": warnings})


def service(model: Model, name: str, *, max_rows: int, max_bytes: int) -> Starlette:
    """Return the application; `name` is what it calls the model.

    A request may have `max_rows` rows and a body of `max_bytes`.
    """
    answers, thread = _Answers(model, max_rows), ThreadPoolExecutor(1)
    description = _json(document(model, name, max_rows))
    health = {"status": "ok", "model": name, "predicts": model.target, "version": __version__}
    healthy = _json(health)

    async def predict(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            text = f"Content-Type must be application/json (got {kind!r:.60})"
            raise _RefusedError(415, text)
        sure = answers.sure(request.query_params)
        body = await _body(request, max_bytes)
        if len(body) <= SMALL_BODY:
            answer = answers.answer(body, sure, at_once=True)
        else:
            many = partial(answers.answer, body, sure, at_once=False)
            answer = await asyncio.get_running_loop().run_in_executor(thread, many)
        return Response(answer, media_type="application/json")

    async def show_health(_: Request) -> Response:
        return Response(healthy, media_type="application/json")

    async def show_description(_: Request) -> Response:
        return Response(description, media_type="application/json")

    return Starlette(
        routes=[
            Route("/predict", predict, methods=["POST"]),
            Route("/health", show_health, methods=["GET"]),
            Route("/openapi.json", show_description, methods=["GET"]),
        ],
        exception_handlers={
            _RefusedError: _on_refusal,
            MlpEngineError: _on_bad_rows,
            HTTPException: _on_http,
            ClientDisconnect: _on_disconnect,
            Exception: _on_failure,
        },
    )


async def _body(request: Request, limit: int) -> bytes:
    """Return the body of a request."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    text = f"the body must have at most {limit:,} bytes; send several requests"
                    raise _RefusedError(413, text)
                parts.append(part)
    except TimeoutError:
        raise _RefusedError(408, f"the body must be sent within {BODY_SECONDS} seconds") from None
    return b"".join(parts)


def _parsed(body: bytes) -> Any:
    """Return JSON as values, without NaN and infinity, which are none, and doubled names."""
    try:
        return json.loads(body.decode(), parse_constant=_no_number, object_pairs_hook=_by_name)
    except RecursionError:
        raise _RefusedError(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise _RefusedError(400, f"the body must be JSON ({error})") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON; null is a missing cell")


def _by_name(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise _RefusedError(422, f"column {double!r:.60} must be there once; remove the others")
    return row


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _problem(
    status: int,
    detail: str,
    cells: Sequence[CellProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    told: dict[str, Any] = {"status": status, "detail": detail}
    if cells:
        told["errors"] = [cell._asdict() for cell in cells]
    kind = "application/problem+json"
    return Response(_json(told), status, headers, media_type=kind)


async def _on_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, _RefusedError)
    return _problem(error.status, error.detail, error.cells)


async def _on_bad_rows(_: Request, error: Exception) -> Response:
    return _problem(422, str(error))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.url.path:.60}: there is {PATHS}"
    return _problem(error.status_code, detail, headers=error.headers)


async def _on_disconnect(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _on_failure(_request: Request, _error: Exception) -> Response:
    return _problem(500, "the service failed; its log tells why")
