"""Makes bytes that no honest client sends: HTTP requests, handshakes, and frames behind them.

`KEY` stands for a key that holds. What is `UNFINISHED` waits for more by right; all else must be
answered, or the connection closed.
"""

import struct

KEY = "$KEY"


def http(
    line: str,
    *headers: str,
    content: bytes = b"",
    key: str | None = KEY,
    length: bool = True,
) -> bytes:
    """Returns a request, of which every part may be odd."""
    more = [*headers, "Connection: close"]
    if key is not None:
        more.append(f"Authorization: Bearer {key}")
    if length and (content or line.startswith(("POST", "PUT", "PATCH"))):
        more.append(f"Content-Length: {len(content)}")
    head = "\r\n".join([line, "Host: gateway", *more]).encode("utf-8", "surrogateescape")
    return head + b"\r\n\r\n" + content


_BODY = b'{"model":"lanewise-fast","input":"x","max_output_tokens":16}'
_POST = "POST /v1/responses HTTP/1.1"
_JSON = "Content-Type: application/json"
_CHUNKED = "Transfer-Encoding: chunked"


def _post(*headers: str, content: bytes = _BODY, length: bool = False) -> bytes:
    return http(_POST, *headers, content=content, length=length)


_METHODS = ("HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH", "DELETE", "PUT", "PROPFIND", "get", "X")
_PATHS = (
    *(
        "/",
        "//",
        "/v1",
        "/v1/",
        "/v1/responses/",
        "/v1//responses",
        "/V1/RESPONSES",
        "/v1/responses/.",
    ),
    *("/../../etc/passwd", "/v1/responses/..%2f..%2fetc%2fpasswd", "/v1/%2e%2e/admin/health"),
    *("/%00", "/%", "/%zz", "/%ff%fe", "/v1/responses/%0d%0aset-cookie:a=b", "/\\..\\windows"),
    *("/v1/responses/x" + "y" * 5_000, "/" + "a/" * 3_000, "/v1/responses/%F0%9F%98%80"),
    *("/v1/responses/resp_x:feedback", "/v1/responses/resp_x%3Aruns", "/v1/responses/*"),
    *("/v1/responses/resp_x/input_items?limit=-1", "/v1/responses/resp_x/input_items?limit=nan"),
    *("/v1/responses/resp_x/input_items?limit=" + "9" * 5_000, "/v1/responses/x?stream=maybe"),
    *("/v1/responses/x?stream=true&starting_after=1e9", "/v1/responses/x?starting_after=-99"),
    *("/v1/responses/x?stream=true&stream=false", "/v1/responses/x?" + "a=b&" * 3_000, "/?%ff=%fe"),
    *("/v1/models/%2e%2e", "/v1/models/" + "m" * 3_000, "/v1/models/a%2fb", "/v1/models/%00"),
    *("/metrics?name=[]", "/schema", "/schema/openapi.json", "/schema/../admin", "/healthz/x"),
    *("http://other/v1/models", "*", "admin/health", "/v1/usage?tenant=other", "/readyz#a"),
    *("/admin", "/admin/", "/admin/policies/1e3", "/admin/tenants/%00", "/v1/link"),
)
_HEADERS = {
    "100 kB of a header": "X-A: " + "a" * 100_000,
    "5,000 headers": "\r\n".join(f"X-{n}: {n}" for n in range(5_000)),
    "an empty name": ": a",
    "a space in a name": "X A: b",
    "a space before the colon": "Content-Type : application/json",
    "a folded line": "X-A: b\r\n c",
    "a NUL": "X-A: \x00",
    "a bare line feed": "X-A: b\nX-B: c",
    "a bare carriage return": "X-A: b\rX-B: c",
    "letters beyond ASCII": "X-Request-Id: ✓\u202e",
    "bytes that are no UTF-8": "X-A: \udcff\udcfe",
    "two hosts": "Host: other",
    "a host that is none": "Host: [::",
    "an odd request id": "X-Request-Id: a%0d%0ab" + "x" * 5_000,
    "an odd trace": "Traceparent: 00-zz-zz-zz\r\nTracestate: =,=",
    "an odd origin": "Origin: null",
    "an odd encoding": "Accept-Encoding: gzip;q=nan, *;q=9",
    "an odd range": "Range: bytes=9-1,-,a",
    "odd languages": "Accept-Language: " + "a," * 5_000,
    "no accepted type": "Accept: ;;;",
    "cookies": "Cookie: " + "a=b; " * 2_000,
    "a forwarded address": 'X-Forwarded-For: 127.0.0.1\r\nForwarded: for=_x;;host="',
    "another method": "X-HTTP-Method-Override: DELETE",
    "a date that is none": "If-Modified-Since: 99999",
    "an upgrade to h2c": "Upgrade: h2c\r\nHTTP2-Settings: AAA",
    "an expectation": "Expect: 100-continue",
    "another expectation": "Expect: the-unexpected",
    "a trailer": "Trailer: Content-Length",
    "hops": "Connection: close, authorization, host\r\nTE: trailers",
    "a keep-alive of years": "Keep-Alive: timeout=99999999999, max=-1",
}
_KEYS = {
    "no key": (),
    "an empty bearer": ("Authorization: Bearer ",),
    "a bearer alone": ("Authorization: Bearer",),
    "spaces": ("Authorization:      ",),
    "a basic one": ("Authorization: Basic Og==",),
    "another scheme": ("Authorization: Digest username=x",),
    "a key of 60 kB": ("Authorization: Bearer " + "k" * 60_000,),
    "a key beyond ASCII": ("Authorization: Bearer ключ✓",),
    "a key that is no UTF-8": ("Authorization: Bearer \udcff",),
    "a key with a NUL": ("Authorization: Bearer a\x00b",),
    "a made key": ("Authorization: Bearer lw_dev_AAAAAAAAAAAA_BBBBBBBBBBBBBBBBBBBBBBBB",),
    "half a made key": ("Authorization: Bearer lw_dev_",),
    "two keys": ("Authorization: Bearer a", "Authorization: Bearer b"),
    "azure's, empty": ("api-key: ",),
    "azure's, odd": ("api-key: \udcfe",),
    "a key with quotes": ("Authorization: Bearer \"'; DROP TABLE keys; --",),
}
_TYPES = ("text/plain", "multipart/form-data", "multipart/form-data; boundary=", "application/xml")
_TYPES += ("application/x-www-form-urlencoded", "application/json; charset=utf-16", "", "/", ";")
_TYPES += ("application/json; charset=nonsense", "application/msgpack", "é", "a" * 5_000)

HTTP: dict[str, bytes] = {
    **{f"{method} of responses": http(f"{method} /v1/responses HTTP/1.1") for method in _METHODS},
    **{f"{method} of nothing": http(f"{method} /nothing HTTP/1.1") for method in _METHODS},
    **{f"GET {path[:60]}": http(f"GET {path} HTTP/1.1") for path in _PATHS},
    **{f"POST {path[:60]}": http(f"POST {path} HTTP/1.1", _JSON, content=_BODY) for path in _PATHS},
    **{f"DELETE {path[:60]}": http(f"DELETE {path} HTTP/1.1") for path in _PATHS},
    **{
        f"a header: {name}": http("GET /v1/models HTTP/1.1", each)
        for name, each in _HEADERS.items()
    },
    **{f"posted with {name}": _post(each, length=True) for name, each in _HEADERS.items()},
    **{
        f"auth: {name}": http("GET /v1/models HTTP/1.1", *more, key=None)
        for name, more in _KEYS.items()
    },
    **{
        f"admin: {name}": http("GET /admin/keys HTTP/1.1", *more, key=None)
        for name, more in _KEYS.items()
    },
    **{
        f"posted, {name}": http(_POST, *more, content=_BODY, key=None)
        for name, more in _KEYS.items()
    },
    **{
        f"a type: {kind[:40]!r} at {path}": http(
            f"POST {path} HTTP/1.1", f"Content-Type: {kind}", content=_BODY
        )
        for kind in _TYPES
        for path in ("/v1/responses", "/v1/route", "/v1/responses/input_tokens")
    },
    "HTTP/0.9": b"GET /v1/models\r\n\r\n",
    "HTTP/1.0": http("GET /v1/models HTTP/1.0"),
    "HTTP/2.0": http("GET /v1/models HTTP/2.0"),
    "HTTP/9.9": http("GET /v1/models HTTP/9.9"),
    "HTTP/1.1.1": http("GET /v1/models HTTP/1.1.1"),
    "no version": http("GET /v1/models"),
    "no target": http("GET HTTP/1.1"),
    "three spaces": http("GET   /v1/models   HTTP/1.1"),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    "nothing but lines": b"\r\n" * 50 + http("GET /v1/models HTTP/1.1"),
    "zeros": b"\x00" * 1_000,
    "noise": bytes(range(256)) * 4,
    "bare line feeds": http("GET /v1/models HTTP/1.1").replace(b"\r\n", b"\n"),
    "a method of 100 kB": b"G" * 100_000 + b" / HTTP/1.1\r\n\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n",
    "a length of -1": _post("Content-Length: -1"),
    "a length of +1": _post("Content-Length: +1"),
    "a length of 0x10": _post("Content-Length: 0x10"),
    "a length of letters": _post("Content-Length: many"),
    "a length beyond ASCII": _post("Content-Length: ٣"),
    "a length of 10**30": _post("Content-Length: 1" + "0" * 30),
    "a length beyond the limit": _post("Content-Length: 999999999999"),
    "an empty length": _post("Content-Length: "),
    "lengths in a list": _post("Content-Length: 60, 60"),
    "two lengths": _post("Content-Length: 60", "Content-Length: 6"),
    "no length": _post(),
    "a length too short": _post("Content-Length: 10"),
    "a length and chunks": _post("Content-Length: 6", _CHUNKED, content=b"0\r\n\r\n" + _BODY),
    "chunks and a length": _post(_CHUNKED, "Content-Length: 6", content=b"0\r\n\r\n"),
    "chunks twice": _post(_CHUNKED, _CHUNKED, content=b"0\r\n\r\n"),
    "chunks, then identity": _post("Transfer-Encoding: chunked, identity", content=b"0\r\n\r\n"),
    "chunks in odd letters": _post("Transfer-Encoding: \x0bchunked", content=b"0\r\n\r\n"),
    "xchunked": _post("Transfer-Encoding: xchunked", content=b"0\r\n\r\n"),
    "gzip": _post("Content-Encoding: gzip", length=True),
    "empty chunks": _post(_CHUNKED, content=b"0\r\n\r\n"),
    "a chunk of letters": _post(_CHUNKED, content=b"zz\r\nabc\r\n0\r\n\r\n"),
    "a chunk of -1": _post(_CHUNKED, content=b"-1\r\nabc\r\n0\r\n\r\n"),
    "a chunk of 2**64": _post(_CHUNKED, content=b"10000000000000000\r\nabc\r\n0\r\n\r\n"),
    "a chunk with an extension": _post(
        _CHUNKED, content=b"1;" + b"a" * 5_000 + b"\r\n{\r\n0\r\n\r\n"
    ),
    "a chunk that ends too late": _post(_CHUNKED, content=b"1\r\n{}}}\r\n0\r\n\r\n"),
    "chunks of one byte": _post(
        _CHUNKED, content=b"".join(b"1\r\n%c\r\n" % byte for byte in _BODY) + b"0\r\n\r\n"
    ),
    "trailers": _post(_CHUNKED, content=b"0\r\nContent-Length: 5\r\nHost: x\r\n\r\n"),
    "smuggled": _post("Content-Length: 0", content=http("GET /admin/keys HTTP/1.1")),
    "pipelined": http("GET /v1/models HTTP/1.1").replace(b"Connection: close\r\n", b"") * 50
    + http("GET /healthz HTTP/1.1"),
    "pipelined posts": _post(length=True).replace(b"Connection: close\r\n", b"") * 8
    + http("GET /healthz HTTP/1.1"),
    "a post, then noise": _post(length=True) + b"\x00\xff" * 500,
    "UTF-16": _post(_JSON, content=_BODY.decode().encode("utf-16"), length=True),
    "UTF-32": _post(_JSON, content=_BODY.decode().encode("utf-32"), length=True),
    "bad UTF-8": _post(_JSON, content=b'{"model":"\xff\xfe\x80","input":"\xc0\xaf"}', length=True),
    "surrogates in UTF-8": _post(
        _JSON, content=b'{"model":"auto","input":"\xed\xa0\x80"}', length=True
    ),
    "an overlong NUL": _post(_JSON, content=b'{"model":"auto","input":"\xc0\x80"}', length=True),
    "bad UTF-8 in an unknown key": _post(
        _JSON, content=_BODY[:-1] + b',"\xff":"\xfe"}', length=True
    ),
    "bytes of no text": _post(_JSON, content=bytes(range(256)), length=True),
    **{
        f"{path} with {name}": http(f"POST {path} HTTP/1.1", _JSON, content=content)
        for path in (
            *("/v1/responses/input_tokens", "/v1/responses/compact", "/v1/route"),
            *("/v1/responses/resp_x/feedback", "/v1/responses/resp_x/cancel"),
            *("/v1/chat/completions", "/v1/responses"),
        )
        for name, content in {
            "nothing": b"",
            "null": b"null",
            "lines": b"\n\r\n\x0b{}\n[]\nnull\n7\n",
            "100,000 brackets": b"[" * 100_000,
            "bytes of no text": bytes(range(128, 256)),
            "an odd line": b'{"id":{"a":[]},"text":1e400}\n{"text":"\xff"}\n{"text":"\\ud800"}',
            "an odd rating": b'{"success":1,"rating":1e400}',
            "10,000 blank lines": b"\n" * 10_000,
        }.items()
    },
}

UNFINISHED: dict[str, bytes] = {
    "half a head": http("GET /v1/models HTTP/1.1")[:40],
    "half a body": _post("Content-Length: 999"),
    "half a chunk": _post(_CHUNKED, content=b"ff\r\nabc"),
    "no chunk": _post(_CHUNKED, content=b""),
    "a head without end": b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 100,
    "one byte": b"G",
}

_HANDSHAKE = {
    "Host": "gateway",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Authorization": f"Bearer {KEY}",
}


def handshake(line: str = "GET /v1/responses HTTP/1.1", more: str = "", **changed: str) -> bytes:
    """Returns an upgrade; a header that is empty is left out."""
    headers = _HANDSHAKE | {name.replace("_", "-"): value for name, value in changed.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
    return f"{line}\r\n{lines}{more}\r\n".encode("utf-8", "surrogateescape")


HANDSHAKES: dict[str, bytes] = {
    "HTTP/1.0": handshake("GET /v1/responses HTTP/1.0"),
    "HTTP/2.0": handshake("GET /v1/responses HTTP/2.0"),
    "a POST": handshake("POST /v1/responses HTTP/1.1"),
    "a HEAD": handshake("HEAD /v1/responses HTTP/1.1"),
    "a body": handshake(Content_Length="5") + b"abcde",
    "chunks": handshake(Transfer_Encoding="chunked") + b"0\r\n\r\n",
    "another path": handshake("GET /v1/nothing HTTP/1.1"),
    "the root": handshake("GET / HTTP/1.1"),
    "the admin's": handshake("GET /admin/health HTTP/1.1"),
    "the link": handshake("GET /v1/link HTTP/1.1"),
    "a path of junk": handshake("GET /v1/%ff%00responses HTTP/1.1"),
    "a path beyond ASCII": handshake("GET /v1/réponses HTTP/1.1"),
    "an absolute target": handshake("GET http://x/v1/responses HTTP/1.1"),
    "a long query": handshake("GET /v1/responses?" + "a=b&" * 3_000 + " HTTP/1.1"),
    "no key of the socket": handshake(Sec_WebSocket_Key=""),
    "a short key": handshake(Sec_WebSocket_Key="abc"),
    "a key that is no base64": handshake(Sec_WebSocket_Key="é" * 11 + "=="),
    "two keys": handshake(more="Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
    "version 8": handshake(Sec_WebSocket_Version="8"),
    "version 99999999999": handshake(Sec_WebSocket_Version="9" * 11),
    "no version": handshake(Sec_WebSocket_Version=""),
    "another upgrade": handshake(Upgrade="h2c"),
    "two upgrades": handshake(Upgrade="websocket, h2c"),
    "no upgrade": handshake(Upgrade=""),
    "no connection": handshake(Connection=""),
    "a protocol": handshake(Sec_WebSocket_Protocol="realtime, openai-insecure-api-key.x"),
    "protocols of junk": handshake(Sec_WebSocket_Protocol=",,,\x00"),
    "an extension of junk": handshake(Sec_WebSocket_Extensions=";=,permessage-deflate; a="),
    "extensions without end": handshake(Sec_WebSocket_Extensions="permessage-deflate," * 300),
    "an origin": handshake(Origin="https://evil.example"),
    "an origin of junk": handshake(Origin="\udcff"),
    "two origins": handshake(more="Origin: a\r\nOrigin: b\r\n"),
    "no authorization": handshake(Authorization=""),
    "a wrong key": handshake(Authorization="Bearer sk-wrong"),
    "a key beyond ASCII": handshake(Authorization="Bearer ✓"),
    "a key of 60 kB": handshake(Authorization="Bearer " + "k" * 60_000),
    "200 headers": handshake(more="".join(f"X-{n}: a\r\n" for n in range(200))),
    "a header of 100 kB": handshake(X_A="a" * 100_000),
    "a header with a NUL": handshake(X_A="\x00"),
    "frames at once": handshake() + b"\x81\x80\x00\x00\x00\x00",
}


def frame(
    opcode: int,
    content: bytes = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    mask: bool = True,
    length: int | None = None,
) -> bytes:
    """Returns a client's frame, of which every part may be odd; RFC 6455 5.2."""
    size = len(content) if length is None else length
    first = (0x80 if fin else 0) | (rsv << 4) | opcode
    masked = 0x80 if mask else 0
    if size < 126:
        head = bytes((first, masked | size))
    elif size < 65_536:
        head = bytes((first, masked | 126)) + struct.pack("!H", size)
    else:
        head = bytes((first, masked | 127)) + struct.pack("!Q", size)
    return head + (b"\x00" * 4 if mask else b"") + content


_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_CREATE = b'{"type":"response.create","model":"lanewise-fast","input":"x","max_output_tokens":16}'

# After a handshake that was accepted; the server answers with a frame, or closes.
SOCKETS: dict[str, bytes] = {
    "an unmasked frame": frame(_TEXT, _CREATE, mask=False),
    "a binary frame": frame(_BINARY, _CREATE),
    "an empty frame": frame(_TEXT),
    "bad UTF-8": frame(_TEXT, b"\xff\xfe"),
    "UTF-8 cut off": frame(_TEXT, b'{"\xe2\x82'),
    "bad UTF-8 in pieces": frame(_TEXT, b'{"\xe2', fin=False) + frame(0, b"\x28\xa1"),
    "surrogates in UTF-8": frame(_TEXT, b'"\xed\xa0\x80"'),
    "noise": bytes(range(256)) * 8,
    "zeros": b"\x00" * 5_000,
    "HTTP": http("GET /v1/models HTTP/1.1"),
    **{f"opcode {code}": frame(code, b"x") for code in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    **{f"reserved bits {bits}": frame(_TEXT, _CREATE, rsv=bits) for bits in range(1, 8)},
    "a continuation of nothing": frame(0, b"x"),
    "a message in a message": frame(_TEXT, b"{", fin=False) + frame(_TEXT, b"}"),
    "a ping of 126 bytes": frame(_PING, b"x" * 126),
    "a ping in pieces": frame(_PING, b"x", fin=False) + frame(0, b"y"),
    "a close in pieces": frame(_CLOSE, b"\x03\xe8", fin=False),
    "a close of one byte": frame(_CLOSE, b"\x03"),
    "a close with bad UTF-8": frame(_CLOSE, b"\x03\xe8\xff"),
    **{
        f"a close with {code}": frame(_CLOSE, struct.pack("!H", code))
        for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535)
    },
    "a close, then a create": frame(_CLOSE, b"\x03\xe8") + frame(_TEXT, _CREATE),
    "two closes": frame(_CLOSE, b"\x03\xe8") * 2,
    "a create, then a close": frame(_TEXT, _CREATE) + frame(_CLOSE, b"\x03\xe8"),
    "a length of 2**63": b"\x81\xff" + struct.pack("!Q", 1 << 63) + b"\x00" * 4,
    "a length of 2**40": frame(_TEXT, length=1 << 40),
    "a length in too many bytes": b"\x81\xfe\x00\x01\x00\x00\x00\x00x",
    "a binary message in pieces": frame(_BINARY, b"x", fin=False) + frame(0, b"y"),
    "a message in 5,000 pieces": frame(_TEXT, b"{", fin=False)
    + frame(0, b" ", fin=False) * 5_000
    + frame(0, b"}"),
    "5,000 empty pieces": frame(_TEXT, fin=False) + frame(0, fin=False) * 5_000 + frame(0, b"{}"),
    "pings between the pieces": frame(_TEXT, _CREATE[:20], fin=False)
    + frame(_PING, b"?") * 100
    + frame(0, _CREATE[20:]),
    "5,000 pings": frame(_PING, b"x" * 125) * 5_000,
    "5,000 pongs of nothing": frame(_PONG, b"x") * 5_000 + frame(_TEXT, b"{}"),
    "5,000 messages of nothing": frame(_TEXT, b"{}") * 5_000,
    "300 creates at once": frame(_TEXT, _CREATE) * 300,
    "2,000 cancels of nothing": frame(_TEXT, b'{"type":"response.cancel","response_id":"resp_x"}')
    * 2_000,
    "100 streams": b"".join(
        frame(_TEXT, _CREATE[:-1] + b',"stream_id":"s%d"}' % n) for n in range(100)
    ),
    "17 MB of brackets": frame(_TEXT, b"[" * (17 << 20)),
    "15 MB of brackets": frame(_TEXT, b"[" * (15 << 20)),
}
