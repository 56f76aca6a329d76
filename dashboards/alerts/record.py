"""Defines an alert: its rule, the page that it links to, and the tests of it."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

# Where the pages are read: a gateway serves them, by default there. Who has them elsewhere says so
# in Prometheus's `global.external_labels.runbooks`.
RUNBOOKS = "http://127.0.0.1:8080/runbooks"
_BASE = f'{{{{ or $externalLabels.runbooks "{RUNBOOKS}" }}}}'

# page: somebody has to act now. ticket: somebody has to act, in working hours. heartbeat: always
# there; the receiver that misses it tells.
Severity = Literal["page", "ticket", "heartbeat"]
Series = Mapping[str, str]  # a series -> its values, as promtool writes them: one each `INTERVAL`


class Recording(NamedTuple):
    """Is a query that Prometheus keeps the result of."""

    name: str
    expr: str


class Case(NamedTuple):
    """Holds series, and says when promtool looks at them."""

    series: Series
    at: str = "10m"
    interval: str = "30s"


class Fires(NamedTuple):
    """Is a case that raises the alert: it holds the labels that it has then, and what it says."""

    case: Case
    says: str
    labels: Mapping[str, str] = {}


class Alert(NamedTuple):
    """Is one alert. Three fields are its runbook, as Markdown."""

    name: str
    expr: str
    severity: Severity
    summary: str  # one sentence, with Prometheus's templates
    fires: Fires
    silent: Case | None
    meaning: str
    first_look: str
    remedy: str
    lasts: str = "0s"  # before it is raised
    few: Case | None = None  # as bad a share, of too few to say: it stays silent, too
    young: Case | None = None  # as bad a share, of what Prometheus knows too little of: likewise

    @property
    def runbook_url(self) -> str:
        """Returns where its page is, as a template of Prometheus's."""
        return f"{_BASE}/{self.name}.md"

    @property
    def default_runbook_url(self) -> str:
        """Returns what the template comes to by default."""
        return f"{RUNBOOKS}/{self.name}.md"
