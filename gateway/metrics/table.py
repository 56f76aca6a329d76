"""Lists every metric of the gateway, under the dashboard, the row and the panel that show it.

From here come the registry, the dashboards and the table of docs/operations.md (`make dashboards`).
Labels come from closed sets or from the configuration, never from text that a client sent. A metric
without `read` is counted where things happen, under its name: `Metrics.counts` and `.histograms`.
The formatter leaves the rows of `tables` alone: a metric is two or three lines, so that a topic
fits a screen.
"""

from gateway.metrics.tables.engines import ENGINES
from gateway.metrics.tables.objectives import OBJECTIVES
from gateway.metrics.tables.pools import POOLS
from gateway.metrics.tables.processes import GATEWAY
from gateway.metrics.tables.routing import ROUTING

DASHBOARDS = (OBJECTIVES, ENGINES, POOLS, ROUTING, GATEWAY)
METRICS = tuple(metric for dashboard in DASHBOARDS for metric in dashboard.metrics)
