"""Lists all alerts, in the groups that Prometheus evaluates."""

from dashboards.alerts import availability, objectives, policy, pools, processes
from dashboards.alerts.record import Alert, Recording

# Over hours and days: evaluated once a minute, from what the others record.
LONG_RECORDINGS: tuple[Recording, ...] = objectives.LONG_RECORDINGS
RECORDINGS: tuple[Recording, ...] = (*objectives.RECORDINGS, *policy.RECORDINGS)
GROUPS: dict[str, tuple[Alert, ...]] = {
    "objectives": objectives.ALERTS,
    "availability": availability.ALERTS,
    "pools": pools.ALERTS,
    "policy": policy.ALERTS,
    "processes": processes.ALERTS,
}
ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS.values() for alert in group)
