"""Reads what tasks hold in Redis."""

import redis


def leases(client: "redis.Redis[bytes]") -> list[bytes]:
    """Returns the leases of all tenants.

    An entry that ends with "!" is none: it remembers for ten minutes a settlement that came before
    its reservation, or twice, as where Redis's first answer was late.
    """
    entries = [entry for key in client.keys("lw1:*lease") for entry in client.zrange(key, 0, -1)]
    return [entry for entry in entries if not entry.endswith(b"!")]
