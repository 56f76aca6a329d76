"""The GPU-style engine's machine: GPUs, constants and the roofline cost model."""
