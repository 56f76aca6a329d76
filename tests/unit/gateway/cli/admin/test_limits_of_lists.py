"""Ties what commands and the console say of how much is listed to what the admin API lists."""

from gateway.admin import keys, tenants
from gateway.cli.admin.tenants import MAX_LISTED
from gateway.console.assets import ROOT


def test_all_know_how_much_is_listed() -> None:
    assert MAX_LISTED == tenants.MAX_LISTED == keys.MAX_LISTED
    page = (ROOT / "tenants" / "page.js").read_text()
    assert f"const MAX_LISTED = {MAX_LISTED:_};" in page
