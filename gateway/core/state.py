"""What changes while a gateway runs: everything else is as it was made."""

from dataclasses import dataclass

from router.policy.policy import Policy


@dataclass(slots=True)
class GatewayState:
    """One per process, shared by all who read it."""

    policy: Policy  # in force; a task reads it once
    shadow: Policy | None = None  # decides too, without effect
    draining: bool = False  # takes nothing new
    num_tasks: int = 0  # between arrival and terminal event
