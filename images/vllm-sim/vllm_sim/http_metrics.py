"""The http_* families of prometheus_fastapi_instrumentator."""

from vllm_sim.exposition import Counter, Family, Histogram, Summary

UNCOUNTED = frozenset({"/metrics", "/health", "/load", "/ping", "/version", "/server_info"})
_FINE = (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60)


class HttpMetrics:
    """Counts answers by handler, method and status class."""

    def __init__(self) -> None:
        self._requests = Counter(
            "http_requests", "Total number of requests by method, status and handler.", ("handler", "method", "status")
        )
        self._request_size = Summary(
            "http_request_size_bytes",
            "Content length of incoming requests by handler. Only value of header is respected. Otherwise ignored. "
            "No percentile calculated. ",
            ("handler",),
        )
        self._response_size = Summary(
            "http_response_size_bytes",
            "Content length of outgoing responses by handler. Only value of header is respected. Otherwise ignored. "
            "No percentile calculated. ",
            ("handler",),
        )
        self._fine = Histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
            _FINE,
        )
        self._fine.of()
        self._coarse = Histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
            (0.1, 0.5, 1),
            ("handler", "method"),
        )

    def families(self) -> list[Family]:
        """Families in the order of the real page."""
        return [self._requests, self._request_size, self._response_size, self._fine, self._coarse]

    def answered(
        self, handler: str, method: str, status: int, seconds: float, request_bytes: int, response_bytes: int
    ) -> None:
        """Count one answer. `response_bytes` is 0 for a stream, which has no Content-Length."""
        if handler in UNCOUNTED:
            return
        self._requests.of(handler, method, f"{status // 100}xx").add()
        self._request_size.observe(request_bytes, handler)
        self._response_size.observe(response_bytes, handler)
        self._fine.of().observe(seconds)
        self._coarse.of(handler, method).observe(seconds)
