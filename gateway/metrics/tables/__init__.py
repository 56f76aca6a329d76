"""Holds the table of metrics, a module for each dashboard; `gateway.metrics.table` joins them."""
