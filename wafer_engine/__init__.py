"""A simulated wafer-scale inference engine: sans-IO, usable alone."""
