"""Names a metric's samples as PromQL asks for them."""

from gateway.metrics.record import Metric


def sample_names(metric: Metric) -> tuple[str, ...]:
    suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
    return tuple(metric.name + suffix for suffix in suffixes)
