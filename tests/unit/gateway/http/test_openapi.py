"""The error body that the OpenAPI document shows is the one that is sent."""

import jsonschema
import msgspec
import pytest

from gateway.http.openapi import ERROR_SCHEMA, with_errors
from gateway.wire.errors import ERRORS, ProtocolError


def test_every_operation_has_it() -> None:
    schema = with_errors(
        {
            "components": {},
            "paths": {
                "/a": {"get": {"responses": {"200": {"description": "Fine"}}}},
                "/b": {"post": {"responses": {"201": {}, "400": {"description": "theirs"}}}},
            },
        }
    )
    assert schema["components"]["schemas"] == {"Error": ERROR_SCHEMA}
    responses = [schema["paths"]["/a"]["get"], schema["paths"]["/b"]["post"]]
    told = [set(each["responses"]) for each in responses]
    assert told == [{"200", "default"}, {"201", "400", "default"}]
    assert responses[0]["responses"]["200"] == {"description": "Fine"}
    for each in (responses[0]["responses"]["default"], responses[1]["responses"]["400"]):
        content = each["content"]["application/json"]
        assert content == {"schema": {"$ref": "#/components/schemas/Error"}}


@pytest.mark.parametrize("code", ERRORS)
def test_errors_are_as_described(code: str) -> None:
    described = ERROR_SCHEMA["properties"]["error"]["properties"]
    for param in (None, "input"):
        error = ProtocolError(code, "Said.", param=param, violated=("fast-requests",))
        body = msgspec.json.decode(msgspec.json.encode(error.body()))
        jsonschema.validate(body, ERROR_SCHEMA)
        assert set(body["error"]) == set(described)
