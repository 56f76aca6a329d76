"""Sets the upper bounds of the histograms' buckets.

Durations double from 10 ms, as OpenTelemetry's GenAI conventions (2026) do; TTFT and TPOT follow
them too, with finer steps below 10 ms, where all of a wafer's tokens fall. Those of `vllm:` metrics
are vLLM's own (its `v1/metrics/loggers.py`, read 2026-11), with finer steps below, as well.
"""

DURATION_S = tuple(0.01 * 2**n for n in range(14))
TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
TPOT_S = (
    *(0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.5, 1.0),
)
OVERHEAD_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
REDIS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
QUEUE_S = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
WAIT_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LAG_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
CONFIDENCE = tuple(n / 10 for n in range(1, 11))
MESSAGE_BYTES = tuple(float(4**n) for n in range(3, 13))  # 64 B .. 16 MiB
CONTEXT_TOKENS = (1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1e6)

VLLM_REQUEST_S = (
    *(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0),
    *(15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0),
)
VLLM_TOKENS = tuple(float(m * 10**n) for n in range(6) for m in (1, 2, 5))  # 1 .. 500,000
