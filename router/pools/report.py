"""What the pools report of themselves, for metrics."""

from typing import Literal

import msgspec

from router.pools.pools import PoolsMode

PoolCall = Literal["admit", "extend", "settle", "renew"]  # to Redis


class PoolsReport(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand."""

    mode: PoolsMode
    num_gateways: int  # that live, this one included, as Redis last said
    num_unsettled: int  # settlements that wait for Redis
    num_uncharged: int  # settlements given up since start
    num_recoveries: int  # returns to Redis since start
