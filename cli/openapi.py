"""The OpenAPI document of a model's service: what it takes and answers, column by column."""

from typing import Any

import numpy as np

from mlpengine import __version__
from mlpengine.models.model import Model

from .predict import Sure, output_columns
from .row_types import cell_types
from .tables import plain_column

KIND = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
"""The JSON type of a value of an answer."""

REFUSALS = {
    400: "The body is not JSON.",
    408: "The body was sent too slowly.",
    413: "Too many rows, or bytes.",
    415: "The body is not declared as JSON.",
    422: "A cell, or a level, cannot be used; the detail names it and the fix.",
}

LEVEL_OPTIONS = {
    "interval": "Add the interval that holds this share of new targets.",
    "set": "Add the set of classes that holds this share of new classes.",
}


def document(model: Model, name: str, max_rows: int) -> dict[str, Any]:
    """Return the document, OpenAPI 3.1."""
    types = cell_types(model.preprocessor)
    row = {
        "type": "object",
        "description": "Cells by column; further columns are ignored.",
        "properties": {one.column: one.schema() for one in types},
        "required": [one.column for one in types],
    }
    rows = {"type": "array", "items": _ref("Row"), "maxItems": max_rows}
    kept = {"interval": model.residuals, "set": model.sets}
    level = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "examples": [0.9]}
    predict = {
        "operationId": "predict",
        "summary": f"Predict {', '.join(model.target)} of one row or several",
        "parameters": [
            {"name": option, "in": "query", "description": about, "schema": level}
            for option, about in LEVEL_OPTIONS.items()
            if kept[option] is not None
        ],
        "requestBody": {"required": True, "content": _json_of({"anyOf": [_ref("Row"), rows]})},
        "responses": {
            "200": _answer("A prediction for each row, in their order.", _ref("Answer")),
            **{
                str(status): {
                    "description": about,
                    "content": {"application/problem+json": {"schema": _ref("Problem")}},
                }
                for status, about in REFUSALS.items()
            },
        },
    }
    health = {"operationId": "health", "summary": "Tell that the service runs, and its version"}
    schema = {"operationId": "schema", "summary": "Return this document"}
    plain = {"type": "object"}
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": __version__, "description": repr(model)},
        "paths": {
            "/predict": {"post": predict},
            "/health": {"get": {**health, "responses": {"200": _answer("It runs.", plain)}}},
            "/openapi.json": {"get": {**schema, "responses": {"200": _answer("It.", plain)}}},
        },
        "components": {
            "schemas": {
                "Row": row,
                "Prediction": _prediction(model),
                "Answer": {
                    "type": "object",
                    "properties": {
                        "predictions": {"type": "array", "items": _ref("Prediction")},
                        "warnings": {
                            "description": "What is unlike the rows trained on.",
                            "type": "array",
                            "items": {"type": "string"},
                        },
                    },
                    "required": ["predictions", "warnings"],
                },
                "Problem": _PROBLEM,
            }
        },
    }


_PROBLEM = {
    "type": "object",
    "description": "RFC 9457; errors are the cells at fault, rows counted from 1.",
    "properties": {
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "row": {"type": "integer"},
                    "column": {"type": "string"},
                    "detail": {"type": "string"},
                },
                "required": ["row", "column", "detail"],
            },
        },
    },
    "required": ["status", "detail"],
}


def _prediction(model: Model) -> dict[str, Any]:
    """Return the schema of a prediction: names and types of its columns, as `predict` has them."""
    output = np.zeros((1, model.mlp.outputs), model.mlp.dtype)
    levels = None if model.residuals is None else 0.5, None if model.sets is None else 0.5
    columns, _ = output_columns(model, output, Sure(*levels))
    always, _ = output_columns(model, output, Sure())
    properties: dict[str, Any] = {
        name: {"type": KIND[type(plain_column(column)[0])]} for name, column in columns.items()
    }
    classes = model.preprocessor.classes
    if classes:
        properties[model.target[0]] = {"enum": classes}
    for name in columns.keys() & {f"{target}_set" for target in model.target if model.sets}:
        properties[name]["items"] = {"enum": classes}
    return {"type": "object", "properties": properties, "required": list(always)}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _answer(about: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": about, "content": _json_of(schema)}
