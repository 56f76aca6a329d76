"""Tests addresses that a server would fetch out of a relayed body, in every dialect."""

import base64
from typing import Any

import msgspec
import pytest

from backends.contract import BackendError
from backends.relay.addresses import check_relayed, names_media
from backends.relay.options import RelayOptions

PRIVATE = "https://169.254.169.254/latest/meta-data/"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(60)).decode()


def dialects(address: str) -> dict[str, dict[str, Any]]:
    """Returns bodies that name an image, and the field that does in each."""
    part = {"type": "image_url", "image_url": {"url": address, "detail": "low"}}
    text = {"type": "text", "text": "an image_url: http://10.0.0.1/"}
    return {
        "messages[0].content[1].image_url.url": {
            "messages": [{"role": "user", "content": [text, part]}]
        },
        "input[1].image": {"input": [{"text": "http://10.0.0.1/"}, {"image": address}]},
        "inputs[0].content[0].image_url": {
            "inputs": [{"content": [{"type": "image_url", "image_url": address}]}]
        },
        "images[1]": {"images": ["data:image/png;base64,AA==", address]},
        "input[0].video[0].url": {"input": [{"video": [{"url": address, "fps": 2}]}]},
        "input[0].audio_url": {"input": [{"audio_url": address}]},
        "instances[0].image.gcsUri": {"instances": [{"image": {"gcsUri": address}}]},
        "input[0].Image_URL.URL": {"input": [{"Image_URL": {"URL": address}}]},
    }


def check(body: dict[str, Any], **options: Any) -> None:
    assert names_media(msgspec.json.encode(body))
    url = "https://embed.example/v1"
    relay = RelayOptions(path="embeddings", model="embed", base_url=url, **options)
    check_relayed(body, "embeddings:embed", relay)


@pytest.mark.parametrize("address", ["file:///etc/passwd", "http://example.com/a.png", PRIVATE])
@pytest.mark.parametrize("param", dialects(""))
def test_what_a_client_may_not_name(param: str, address: str) -> None:
    with pytest.raises(BackendError, match="Model 'embed' takes data:, https: URLs") as refused:
        check(dialects(address)[param])
    assert refused.value.param == param
    is_image = "image" in param.lower()
    assert refused.value.code == ("invalid_image_url" if is_image else "invalid_value")


@pytest.mark.parametrize("address", ["https://example.com/a.png", "data:image/png;base64,AA=="])
@pytest.mark.parametrize("param", dialects(""))
def test_what_it_may(param: str, address: str) -> None:
    check(dialects(address)[param])


def test_what_an_operator_lets_it() -> None:
    check(
        dialects("http://10.0.0.1/a.png")["images[1]"],
        url_schemes=("data", "http"),
        private_urls=True,
    )


@pytest.mark.parametrize("content", [PNG, JPEG])
def test_content_itself_is_no_address(content: str) -> None:
    check({"input": [{"image": content}], "images": [content]})


@pytest.mark.parametrize("path", ["/etc/passwd", "images/" + "a" * 80 + ".png", "/" + "a" * 80])
def test_a_path_is_not_taken_for_content(path: str) -> None:
    with pytest.raises(BackendError):
        check({"input": [{"image": path}]})


def test_a_text_may_say_anything() -> None:
    says = {"type": "image_url", "text": PRIVATE, "caption": PRIVATE, "title": [PRIVATE]}
    fields = {"metadata": {"page_url": PRIVATE}, "user": PRIVATE}
    check({"input": [PRIVATE, says, {"image": {"alt": PRIVATE}}], **fields})
    assert not names_media(b'{"model":"embed","input":["http://10.0.0.1/",[1,2,3]]}')


def test_a_name_may_be_escaped() -> None:
    assert names_media(rb'{"input":[{"\u0069mag\u0065":"file:///etc/passwd"}]}')


def test_a_deep_body_is_read_to_its_end() -> None:
    body: Any = {"image": PRIVATE}
    for _ in range(5_000):
        body = [body]
    with pytest.raises(BackendError):
        check_relayed({"input": body}, "x", RelayOptions(path="embeddings", model="e", base_url=""))
