"""Ties what the console says of how much is listed to what the admin API lists."""

from gateway.config.tenants import MAX_LISTED
from gateway.console.assets import ROOT


def test_the_console_knows_how_much_is_listed() -> None:
    page = (ROOT / "tenants" / "page.js").read_text()
    assert f"const MAX_LISTED = {MAX_LISTED:_};" in page
