"""Tests addresses that an upstream would fetch: which a client may name."""

import pytest

from backends.contract import (
    BackendError,
    FilePart,
    FunctionCallOutput,
    ImagePart,
    Message,
    TextPart,
)
from backends.upstream.addresses import check_addresses
from tests.unit.backends.upstream.upstream_requests import make_options, make_request

TAKEN = (
    "data:image/png;base64,iVBORw0KGgo=",
    "DATA:image/png;base64,iVBORw0KGgo=",
    "https://example.com/cat.png?size=2#top",
    "HTTPS://Example.COM:8443/cat.png",
    "https://8.8.8.8/cat.png",
    "https://[2606:4700::1111]/cat.png",
    "https://xn--bcher-kva.example/cat.png",
    "https://5.example.com/cat.png",
    *("https://bücher.example/cat.png", "https://пример.рф/", "https://例え。テスト/cat.png"),
)
REFUSED = (
    *("file:///etc/passwd", "FILE:///etc/passwd", "ftp://example.com/a", "gopher://example.com/"),
    *("http://example.com/cat.png", "//example.com/cat.png", "cat.png", "", ":", "https:"),
    *(
        " https://example.com/",
        "https://example.com/ a",
        "https://exam\nple.com/",
        "ht\ttps://a.b/",
    ),
    *("https:\\\\169.254.169.254\\", "https://a.example\\@127.0.0.1/"),
    *("https://user@example.com/", "https://user:password@example.com/", "https:///path"),
    *("https://[::1", "https://[::1]/", "https://[::]/", "https://[fe80::1%25eth0]/"),
    *("https://[fc00::1]/", "https://[::ffff:10.0.0.1]/", "https://[64:ff9b::a9fe:a9fe]/"),
    *("https://[2002:7f00:1::]/", "https://[ff02::1]/"),
    *("https://[::127.0.0.1]/", "https://[::a9fe:a9fe]/", "https://[::ffff:0:7f00:1]/"),
    "https://[fec0::1]/",
    *("https://169.254.169.254/latest/meta-data/", "https://127.0.0.1/", "https://10.1.2.3/"),
    *("https://192.168.0.1/", "https://172.16.0.1/", "https://100.64.0.1/", "https://0.0.0.0/"),
    *("https://224.0.0.1/", "https://255.255.255.255/", "https://0/", "https://127.1/"),
    *("https://2130706433/", "https://0x7f000001/", "https://0x7f.1/", "https://0177.0.0.1/"),
    *("https://017700000001/", "https://127.0.0.1./", "https://%31%32%37.0.0.1/"),
    *("https://１２７.0.0.1/", "https://169。254。169。254/", "https://①②⑦.0.0.1/"),
    # Clients of HTTP take these by UTS 46: one dot is ideographic, or what is not seen is dropped.
    *("https://169.254.169。254/", "https://169.254.169%E3%80%82254/", "https://127.0.0｡1/"),
    *("https://127.0.0.\u00ad1/", "https://127.0.0.1.%C2%AD/", "https://meta.inter\u200bnal/"),
    *("https://localhost/", "https://LOCALHOST:6379/", "https://a.localhost/", "https://redis/"),
    *("https://metadata.google.internal/", "https://printer.local./", "https://a.home.arpa/"),
)


@pytest.mark.parametrize("address", TAKEN)
def test_public_addresses_pass(address: str) -> None:
    request = make_request(Message("user", (ImagePart(address), FilePart(file_url=address))))
    check_addresses(request, "up", make_options())


@pytest.mark.parametrize("address", REFUSED)
def test_other_addresses_are_refused_by_the_field_that_has_them(address: str) -> None:
    for item, param, code in (
        (
            Message("user", (TextPart("See"), ImagePart(address))),
            "input[1].content[1].image_url",
            "invalid_image_url",
        ),
        (
            FunctionCallOutput("c", (FilePart(file_url=address),)),
            "input[1].output[0].file_url",
            "invalid_value",
        ),
    ):
        request = make_request(Message("user", (TextPart("Hello."),)), item)
        with pytest.raises(BackendError) as refused:
            check_addresses(request, "up", make_options())
        error = refused.value
        assert (error.param, error.code, error.retryable) == (param, code, False)
        assert param in error.message
        assert "data:, https: URLs of public hosts" in error.message


def test_an_operator_may_allow_more_or_less() -> None:
    request = make_request(Message("user", (ImagePart("http://10.0.0.7/cat.png"),)))
    check_addresses(request, "up", make_options(url_schemes=("http",), private_urls=True))
    with pytest.raises(BackendError, match="not public"):
        check_addresses(request, "up", make_options(url_schemes=("http",)))
    with pytest.raises(BackendError, match="no scheme"):
        check_addresses(request, "up", make_options(private_urls=True))
    inline = make_request(Message("user", (ImagePart("data:image/png;base64,AA=="),)))
    with pytest.raises(BackendError):
        check_addresses(inline, "up", make_options(url_schemes=()))


def test_what_names_no_address_passes() -> None:
    parts = (ImagePart(file_id="file-1"), FilePart(file_data="file:///x"), TextPart("file:///x"))
    check_addresses(make_request(Message("user", parts)), "up", make_options())
