"""Reports of who was let in, from which metrics are made."""

import msgspec


class AccessReport(msgspec.Struct, frozen=True):
    """Counts refusals for a missing, wrong or ended key, since start."""

    num_refused_clients: int = 0
    num_refused_admins: int = 0
