"""The table of metrics, in a module for each dashboard; `gateway.metrics.table` joins them."""
