"""Counts money against budgets: of a tenant, of a key, and of a run, in nano-dollars.

A task reserves what it can cost at most and is charged what it cost, so that a hard budget is never
exceeded by what it can bound. What is charged counts on the UTC day, in the month and in all; what
is reserved counts against each of them. `pools.lua` does the same, and a test compares the two.
"""

import datetime
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from router.classify.task import Account
from router.pools.bucket import BLOCKED_WAIT_MS, DAY_MS, SLOT_WAIT_MS

Window = Literal["day", "month", "run"]
Scope = Literal["tenant", "key", "run"]

WINDOWS: tuple[Window, ...] = ("day", "month", "run")
MAX_NUSD = 4_000_000 * 10**9  # Lua's numbers are whole up to 2^53
_SCOPES: dict[str, Scope] = {"t": "tenant", "k": "key", "r": "run"}
_HOLD = re.compile(r"\$(\d+);([\w.,-]+)\|-?\d+\|-?\d+$", re.ASCII)
_EPOCH = datetime.date(1970, 1, 1)


class AccountState(msgspec.Struct):
    """Holds what is counted of an account on `day`. Mutable."""

    day: int  # since 1970
    held: int = 0  # reserved by tasks in flight
    spent_day: int = 0
    spent_month: int = 0
    spent: int = 0
    raised: int = -1  # a run's own limit, from an admin; -1: as configured

    def of_window(self, window: int) -> int:
        """Returns what was spent in one of `WINDOWS`."""
        return (self.spent_day, self.spent_month, self.spent)[window]


class AccountBalance(msgspec.Struct, frozen=True):
    """Holds an account as a reservation found it."""

    account: Account
    held: int
    spent: tuple[int, int, int]  # in each of `WINDOWS`
    raised: int
    renews_ms: tuple[int, int]  # until the day and the month are over
    # Whether each window's soft or hard limit is to be told now, since it is met for the first
    # time.
    soft_told: tuple[bool, bool, bool] = (False, False, False)
    hard_told: tuple[bool, bool, bool] = (False, False, False)

    @property
    def scope(self) -> Scope:
        return _SCOPES[self.account.name[0]]

    @property
    def hard(self) -> tuple[int, int, int]:
        """Returns the hard limits, as an admin has raised them."""
        day, month, whole = self.account.hard
        return day, month, whole if self.raised < 0 else self.raised


def money_of(most_nusd: int, accounts: Sequence[Account]) -> str:
    """Encodes held money for a lease; empty without accounts."""
    if not accounts:
        return ""
    return f"${most_nusd};{','.join(account.name for account in accounts)}"


def parse_hold(lease: str) -> tuple[int, tuple[str, ...]]:
    """Decodes the money that a lease holds, and of which accounts."""
    if "$" not in lease:
        return 0, ()
    found = _HOLD.search(lease)
    return (0, ()) if found is None else (int(found[1]), tuple(found[2].split(",")))


def month_of(day: int) -> int:
    """Returns the number of a day's month."""
    date = _EPOCH + datetime.timedelta(days=day)
    return date.year * 12 + date.month - 1


def month_left_ms(day: int, now_ms: int) -> int:
    """Returns how long until the day's month is over."""
    date = _EPOCH + datetime.timedelta(days=day)
    next_month = (date.replace(day=28) + datetime.timedelta(days=4)).replace(day=1)
    return (next_month - _EPOCH).days * DAY_MS - now_ms


def roll(state: AccountState, now_ms: int) -> None:
    """Brings an account to the day of `now_ms`; a step back over one midnight changes nothing."""
    today = now_ms // DAY_MS
    if today > state.day:
        state.spent_day = 0
        if month_of(today) != month_of(state.day):
            state.spent_month = 0
        state.day = today
    elif today < state.day - 1:
        state.day = today


def wait_of(
    account: Account, state: AccountState, most_nusd: int, now_ms: int
) -> tuple[int, int] | None:
    """Returns how long until so much money fits, and the window that says so; None: it fits.

    Money that is only held may come back at any moment. What costs nothing always fits.
    """
    if not most_nusd:
        return None
    waits: list[tuple[int, int]] = []
    for window, configured in enumerate(account.hard):
        limit = state.raised if window == 2 and state.raised >= 0 else configured
        spent = state.of_window(window)
        if limit < 0 or spent + state.held + most_nusd <= limit:
            continue
        if spent + most_nusd <= limit:
            waits.append((SLOT_WAIT_MS, window))
        elif window == 0:
            waits.append(((state.day + 1) * DAY_MS - now_ms, window))
        elif window == 1:
            waits.append((month_left_ms(state.day, now_ms), window))
        else:
            waits.append((BLOCKED_WAIT_MS, window))
    return max(waits, key=lambda wait: wait[0]) if waits else None


def bounded(nusd: int) -> int:
    """Keeps a sum within what Lua can count."""
    return max(0, min(MAX_NUSD, nusd))


class Purse:
    """Holds one tenant's accounts, by name."""

    def __init__(self) -> None:
        self.states: dict[str, AccountState] = {}
        self._told: dict[tuple[str, str, int], tuple[int, int]] = {}  # -> its period, the limit

    def at(self, name: str, now_ms: int) -> AccountState:
        """Returns an account as it is now."""
        state = self.states.get(name)
        if state is None:
            state = self.states[name] = AccountState(now_ms // DAY_MS)
        roll(state, now_ms)
        return state

    def wait(
        self, accounts: Sequence[Account], most_nusd: int, now_ms: int
    ) -> tuple[int, int, int] | None:
        """Returns the longest wait for so much money, its account and window; None: it fits."""
        longest: tuple[int, int, int] | None = None
        for index, account in enumerate(accounts):
            found = wait_of(account, self.at(account.name, now_ms), most_nusd, now_ms)
            if found is not None and (longest is None or found[0] > longest[0]):
                longest = (found[0], index, found[1])
        return longest

    def hold(self, lease: str, now_ms: int) -> None:
        """Takes the money that a lease holds, whether it fits or not."""
        most_nusd, names = parse_hold(lease)
        for name in names:
            state = self.at(name, now_ms)
            state.held = bounded(state.held + most_nusd)

    def settle(self, lease: str, nusd: int, now_ms: int) -> None:
        """Gives back what a lease holds, and charges what was spent."""
        most_nusd, names = parse_hold(lease)
        for name in names:
            state = self.at(name, now_ms)
            state.held = bounded(state.held - most_nusd)
            state.spent_day = bounded(state.spent_day + nusd)
            state.spent_month = bounded(state.spent_month + nusd)
            state.spent = bounded(state.spent + nusd)

    def balances(
        self,
        accounts: Sequence[Account],
        now_ms: int,
        over_budget: tuple[int, int] | None = None,
        *,
        tells: bool = True,
    ) -> tuple[AccountBalance, ...]:
        """Returns accounts as they are, and notes what is told of them, if it tells anything.

        `over_budget`: the account and window whose money is spent, if that refused a task.
        """
        if not accounts:
            return ()
        refused_by, refused = (-1, -1) if over_budget is None else over_budget
        return tuple(
            self._balance(account, now_ms, refused if index == refused_by else -1, tells)
            for index, account in enumerate(accounts)
        )

    def _balance(self, account: Account, now_ms: int, refused: int, tells: bool) -> AccountBalance:
        state = self.at(account.name, now_ms)
        spent = (state.spent_day, state.spent_month, state.spent)
        periods = (state.day, month_of(state.day), 0)
        soft = [
            tells and 0 <= limit <= used and self._tell(account.name, "s", window, period, limit)
            for window, (limit, used, period) in enumerate(
                zip(account.soft, spent, periods, strict=True)
            )
        ]
        hard = [False, False, False]
        if refused >= 0:
            raised = refused == 2 and state.raised >= 0
            limit = state.raised if raised else account.hard[refused]
            hard[refused] = self._tell(account.name, "x", refused, periods[refused], limit)
        renews = ((state.day + 1) * DAY_MS - now_ms, month_left_ms(state.day, now_ms))
        return AccountBalance(
            *(account, state.held, spent, state.raised, renews),
            (soft[0], soft[1], soft[2]),
            (hard[0], hard[1], hard[2]),
        )

    def _tell(self, name: str, kind: str, window: int, period: int, limit: int) -> bool:
        told = self._told.get((name, kind, window))
        if told is not None and told[0] == period and told[1] >= limit:
            return False
        self._told[name, kind, window] = (period, limit)
        return True
