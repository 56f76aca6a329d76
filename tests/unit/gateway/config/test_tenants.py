"""Tests tenants from their tiers and what is said of them alone."""

from typing import Any

import msgspec
import pytest

from gateway.access.tenant_view import TenantsView
from gateway.config.budgets import Budget, Budgets
from gateway.config.tenants import (
    DEFAULT_TIERS,
    TenantRecord,
    Tier,
    fault_of,
    fault_of_tier,
    resolve,
)
from router.classify.task import GroupLimits
from router.money.prices import NUSD

FAST = GroupLimits(requests_per_min=60, tokens_per_min=1000, max_concurrent=4)
DEEP = GroupLimits(requests_per_min=6, tokens_per_min=100, max_concurrent=2)
TIERS = {"free": Tier(limits={"deep": DEEP}), "pro": Tier(limits={"fast": FAST, "deep": DEEP})}
WHOLE = {"requests_per_min": 1, "tokens_per_min": 2, "max_concurrent": 3}

RESOLVED: list[tuple[str, dict[str, Any], set[str]]] = [
    ("free", {}, {"deep"}),
    ("pro", {}, {"fast", "deep"}),
    ("pro", {"access": ("deep",)}, {"deep"}),
    ("pro", {"access": ()}, set()),
    ("free", {"access": ("fast",)}, set()),
    ("free", {"limits": {"fast": WHOLE}}, {"fast", "deep"}),
    ("free", {"limits": {"fast": {"max_concurrent": 1}}}, {"deep"}),  # not whole: not theirs
    ("gone", {}, set()),
    ("gone", {"limits": {"fast": WHOLE}}, {"fast"}),
]


@pytest.mark.parametrize(("tier", "fields", "groups"), RESOLVED)
def test_access(tier: str, fields: dict[str, Any], groups: set[str]) -> None:
    assert set(resolve(TenantRecord(id="acme", tier=tier, **fields), TIERS).limits) == groups


def test_one_limit_of_its_own_leaves_the_others_to_the_tier() -> None:
    record = TenantRecord(id="a", tier="pro", limits={"fast": {"requests_per_min": 0}}, weight=3.0)
    tenant = resolve(record, TIERS)
    assert tenant.limits["fast"] == msgspec.structs.replace(FAST, requests_per_min=0)
    assert tenant.limits["deep"] == DEEP
    assert tenant.weight == 3.0
    assert resolve(TenantRecord(id="a", tier="pro"), TIERS).weight == 1.0


FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"id": "A b"}, "id", "must be 1 to 64"),
    ({"id": "{x}"}, "id", "must be 1 to 64"),
    ({"tier": "gold"}, "tier", "expected one of free, pro"),
    ({"limits": {"fast": {"rpm": 1}}}, "limits.fast", "no limit 'rpm'"),
    (
        {"tier": "free", "limits": {"fast": {"max_concurrent": 1}}},
        "limits.fast",
        "all must be given",
    ),
]


@pytest.mark.parametrize(("fields", "field", "words"), FAULTS)
def test_faults_are_named(fields: dict[str, Any], field: str, words: str) -> None:
    fault = fault_of(TenantRecord(**({"id": "acme", "tier": "pro"} | fields)), TIERS)
    assert fault is not None
    assert fault.field == field
    assert words in fault.says


def test_the_default_tiers_are_sound() -> None:
    for name, tier in DEFAULT_TIERS.items():
        assert fault_of_tier(name, tier) is None
        assert fault_of(TenantRecord(id="a", tier=name), DEFAULT_TIERS) is None
    assert fault_of_tier("Gold!", Tier()) is not None
    assert fault_of_tier(
        "x", Tier(limits={"fast": msgspec.structs.replace(FAST, max_concurrent=-1)})
    )


def test_a_configured_tenant_is_not_replaced_but_a_configured_tier_is() -> None:
    tenant_view = TenantsView([TenantRecord(id="acme", tier="free")], TIERS)
    encode = msgspec.json.encode
    tenant_view.put(
        {
            "tenant:acme": encode(TenantRecord(id="acme", tier="pro")),
            "tenant:beta": encode(TenantRecord(id="beta", tier="pro")),
            "tier:free": encode(Tier(limits={"fast": FAST})),
        }
    )
    acme, beta = tenant_view.tenant("acme"), tenant_view.tenant("beta")
    assert acme is not None
    assert beta is not None
    assert (acme.tier, set(acme.limits), set(beta.limits)) == ("free", {"fast"}, {"fast", "deep"})
    tenant_view.put({"tier:free": None, "tenant:beta": None})
    acme = tenant_view.tenant("acme")
    assert acme is not None
    assert set(acme.limits) == {"deep"}
    assert tenant_view.tenant("beta") is None


def test_a_record_of_a_newer_release_is_left_out_and_one_with_more_fields_taken() -> None:
    tenant_view = TenantsView(tiers=TIERS)
    odd = tenant_view.put(
        {
            "tenant:new": b'{"id": "new", "tier": "pro", "colour": "red"}',
            "tenant:odd": b'{"id": 7}',
            "badge:x": b"{}",
        }
    )
    assert odd == ["tenant:odd", "badge:x"]
    assert tenant_view.tenant("new") is not None


def test_sites_parts_of_a_limit_add_up_to_no_more_than_it() -> None:
    half = GroupLimits(
        requests_per_min=7, tokens_per_min=1_000_001, max_concurrent=1, tokens_per_day=None
    )
    budgets: Budgets = {"day": Budget(soft_usd=1.0, hard_usd=10.0), "key_day": Budget(hard_usd=2.0)}
    record = TenantRecord(id="acme", tier="one", budgets=budgets)
    sites = [TenantsView([record], {"one": Tier(limits={"fast": half})}, each) for each in (20, 80)]
    edge, home = (site.tenant("acme") for site in sites)
    assert edge is not None
    assert home is not None
    for name in ("requests_per_min", "tokens_per_min"):
        parts = [getattr(each.limits["fast"], name) for each in (edge, home)]
        assert sum(parts) <= getattr(half, name)
        assert parts[0] == getattr(half, name) // 5
    assert edge.limits["fast"].max_concurrent == 1  # never less, or nobody could use it
    assert edge.limits["fast"].tokens_per_day is None
    assert edge.accounts[0].hard == (2 * NUSD, -1, -1)
    assert edge.accounts[0].soft == (NUSD // 5, -1, -1)
    assert edge.key_account is not None
    assert edge.key_account.hard[0] == 2 * NUSD // 5
