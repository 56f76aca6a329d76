"""Tests which addresses may name an image, or a file."""

import pytest

from backends.image_urls import file_objection, objection

TAKEN = [
    "https://example.com/a.png",
    "http://x",
    "HTTPS://EXAMPLE.COM",
    "https://[::1]:8080/a?b#c",
    "data:image/png;base64,AA==",
    "data:image/svg+xml;charset=utf-8;base64,PHN2Zy8+",
    "data:image/*;base64,/9j/4AAQ",  # from phones, which do not look
    "DATA:IMAGE/JPEG;BASE64,/9j/4AAQ",
    "data:image/webp;base64,\nUklGR" + "A" * 1_000_000,
]
REFUSED = [
    "a picture",
    "",
    "/tmp/a.png",
    "file:///etc/passwd",
    "ftp://example.com/a.png",
    "https:example.com",
    "https://",
    "https:///a.png",
    " https://example.com",
    "javascript:alert(1)",
    "data:,",
    "data:image/png;base64,",
    "data:image/png;base64,!",
    "data:image/png,AA==",
    "data:image/png;utf8,AA==",
    "data:text/plain;base64,AA==",
    "data:;base64,AA==",
    "iVBORw0KGgo=",
    "data:image/png;" + "a;" * 1_000_000,
]


@pytest.mark.parametrize("address", TAKEN, ids=lambda address: address[:40])
def test_urls_of_images_are_taken(address: str) -> None:
    assert objection(address) is None


@pytest.mark.parametrize("address", REFUSED, ids=lambda address: address[:40])
def test_what_names_no_image_is_shown(address: str) -> None:
    words = objection(address)
    assert words is not None
    assert words.endswith(f"got {address[:64]!r}")
    assert "http or https URL" in words


FILES = [
    "data:application/pdf;base64,JVBE",
    "data:text/plain;charset=utf-8;base64,AA==",
    "data:;base64,AA==",
]
NO_FILES = [
    "a file",
    "",
    "/tmp/a.pdf",
    "file:///etc/passwd",
    "https://",
    "data:text/plain,x",
    "data:,",
]


@pytest.mark.parametrize("address", [*TAKEN, *FILES], ids=lambda address: address[:40])
def test_urls_of_files_are_taken(address: str) -> None:
    assert file_objection(address) is None


@pytest.mark.parametrize("address", [*NO_FILES, REFUSED[-1]], ids=lambda address: address[:40])
def test_what_names_no_file_is_shown(address: str) -> None:
    words = file_objection(address)
    assert words is not None
    assert words.endswith(f"got {address[:64]!r}")
