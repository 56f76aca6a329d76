"""The sub-tasks of a run, as its client sees and redirects them."""

from backends.contract import ContextItem
from gateway.wire.routing import RoutedDelegation
from router.strategies.actions import Action
from router.strategies.delegate import Delegate


class Delegations:
    """See the module."""

    def __init__(self, machine: Delegate, response_id: str) -> None:
        self._machine = machine
        self._response_id = response_id
        self._states: list[str] = []

    def redirect(self, number: int, items: tuple[ContextItem, ...] | None) -> list[Action]:
        """Steer one sub-task, or cancel it (None); harmless where it does not run."""
        if items is None:
            return self._machine.cancel_delegation(number)
        return self._machine.steer_delegation(number, items)

    @property
    def running(self) -> frozenset[int]:
        """The numbers of those under way."""
        return frozenset(d.number for d in self._machine.delegations if d.state == "running")

    def has_changed(self) -> bool:
        """Whether one has another state than at the last call."""
        states: list[str] = [delegation.state for delegation in self._machine.delegations]
        before, self._states = self._states, states
        return states != before

    def view(self, *, is_closed: bool) -> tuple[RoutedDelegation, ...]:
        """Each with its state and its id.

        Closing a run cancels those under way, which the machine does not hear of.
        """
        return tuple(
            RoutedDelegation(
                f"{self._response_id}-d{each.number}",
                each.task,
                "cancelled" if is_closed and each.state == "running" else each.state,
            )
            for each in self._machine.delegations
        )
