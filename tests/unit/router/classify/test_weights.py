"""Tests whose weight counts while tenants wait."""

import pytest

from router.waiting.rules import WaitingConfig, weight_of

CONFIG = WaitingConfig(weights={"pro": 4}, tenant_weights={"batch": 9})


@pytest.mark.parametrize(
    ("tenant_id", "tier", "own", "weight"),
    [
        ("batch", "pro", 2.0, 9),
        ("acme", "pro", 2.0, 4),
        ("acme", "free", 2.6, 3),
        ("acme", "free", 0.2, 1),
        ("acme", "free", 1.0, 1),
    ],
)
def test_weight_of(tenant_id: str, tier: str, own: float, weight: int) -> None:
    assert weight_of(CONFIG, tenant_id, tier, own) == weight
