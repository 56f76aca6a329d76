"""Turning a request into a stream of deltas: simulated engines today, real servers as upstreams."""
