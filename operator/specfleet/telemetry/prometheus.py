"""The one place that talks to Prometheus: prometheus-api-client behind time-outs, typed errors and typed series.

The client library raises four families of exceptions, hides warnings and partial results, and retries for seconds;
here every failure is a PrometheusError, nothing is retried (the next tick is the retry) and a result with warnings is
not a result.
"""

import asyncio
import json
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import requests
from prometheus_api_client import PrometheusConnect
from urllib3.util.retry import Retry

from specfleet.decide.counters import Floats
from specfleet.telemetry.servers import MetricsServer

CONNECT_TIMEOUT_SECONDS = 3.0
CONCURRENT_QUERIES = 4


class PrometheusError(Exception):
    """The metrics server gave no usable answer. The message says which server, what happened and what to do."""


class PrometheusUnreachable(PrometheusError):  # noqa: N818 - the family is PrometheusError
    """No connection, or no answer in time."""


class PrometheusRefused(PrometheusError):  # noqa: N818
    """HTTP 4xx: credentials, tenant, address or query."""


class PrometheusFailed(PrometheusError):  # noqa: N818
    """HTTP 5xx."""


class PrometheusGarbled(PrometheusError):  # noqa: N818
    """HTTP 200 with something that is not a Prometheus answer."""


class PrometheusPartial(PrometheusError):  # noqa: N818
    """An answer with warnings: series may be missing (Thanos, Mimir, remote read)."""


@dataclass(frozen=True, slots=True)
class Series:
    """Raw samples of one series, oldest first. Values may be NaN or infinite, as exposed."""

    labels: dict[str, str]
    times: Floats
    values: Floats


class _CheckedSession(requests.Session):
    """Turns every outcome that is not a complete answer into a PrometheusError before the library can hide it."""

    def __init__(self, server: MetricsServer) -> None:
        super().__init__()
        self._server = server

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """As requests.Session.request; the query travels in the body, so that its length is not limited."""
        if str(method).upper() == "POST" and kwargs.get("params"):
            kwargs["data"] = kwargs.pop("params")
        try:
            response = super().request(method, url, *args, **kwargs)
        except requests.RequestException as error:
            raise PrometheusUnreachable(f"{self._server.url}: {_short(error)}") from error
        self._check(response)
        return response

    def _check(self, response: requests.Response) -> None:
        if response.status_code >= 500:
            raise PrometheusFailed(f"{self._server.url}: HTTP {response.status_code}{_own_words(response)}")
        if response.status_code != 200:
            raise PrometheusRefused(
                f"{self._server.url}: HTTP {response.status_code}{_own_words(response)} "
                "(check url, credentials and tenant in spec.monitoring.prometheus)"
            )
        try:
            body = json.loads(response.content)
        except ValueError as error:
            kind = response.headers.get("Content-Type", "no content type")
            raise PrometheusGarbled(f"{self._server.url}: answered {kind} instead of JSON") from error
        if not isinstance(body, dict) or body.get("status") != "success":
            what = str(body.get("error", "no error text"))[:200] if isinstance(body, dict) else "not an object"
            raise PrometheusGarbled(f"{self._server.url}: query failed: {what}")
        if body.get("warnings"):
            raise PrometheusPartial(f"{self._server.url}: partial result: {'; '.join(map(str, body['warnings']))}")
        # The library decodes the body again; hand it the decoded one.
        response.json = lambda **_: body  # type: ignore[method-assign]


def _own_words(response: requests.Response) -> str:
    """What a Prometheus says itself. Anything else stays untold: a spec may name any address inside the network, and
    what answers there is not for those who can read a status."""
    try:
        body = json.loads(response.content)
    except ValueError:
        return ""
    if not isinstance(body, dict) or body.get("status") != "error":
        return ""
    return f": {str(body.get('error', ''))[:200]}"


class Prometheus:
    """One server. Queries run on threads of its own, at most `CONCURRENT_QUERIES` at once."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._threads = ThreadPoolExecutor(CONCURRENT_QUERIES, thread_name_prefix="prometheus")
        self._local = threading.local()
        self.queries = 0
        """Requests sent so far."""

    async def range_vector(self, query: str, at: float) -> list[Series]:
        """Raw samples of an instant query with a range selector, evaluated at `at` (epoch seconds).

        Raises PrometheusError; an empty list is an answer (no such series).
        """
        return await self._evaluated(query, at)

    async def instant_vector(self, query: str, at: float) -> list[Series]:
        """One sample per series of an instant query. Raises as range_vector does."""
        return await self._evaluated(query, at)

    async def _evaluated(self, query: str, at: float) -> list[Series]:
        self.queries += 1
        loop = asyncio.get_running_loop()
        deadline = CONNECT_TIMEOUT_SECONDS + 2 * self._server.timeout_seconds
        try:
            async with asyncio.timeout(deadline):
                return await loop.run_in_executor(self._threads, self._ask, query, at)
        except TimeoutError as error:
            raise PrometheusUnreachable(f"{self._server.url}: no complete answer within {deadline:.0f} s") from error

    def close(self) -> None:
        """Give the threads back without waiting for answers."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, query: str, at: float) -> list[Series]:
        try:
            result = self._client().custom_query(
                query,
                params={"time": f"{at:.3f}", "timeout": f"{self._server.timeout_seconds:g}s"},
                timeout=(CONNECT_TIMEOUT_SECONDS, self._server.timeout_seconds),
            )
        except PrometheusError:
            raise
        except Exception as error:  # Whatever a liar sends (nesting without end, numbers without end) is no data.
            raise PrometheusGarbled(f"{self._server.url}: unexpected answer: {_short(error)}") from error
        return _parse(result, self._server.url)

    def _client(self) -> PrometheusConnect:
        """One client per thread: requests sessions are not made for sharing."""
        client = getattr(self._local, "client", None)
        if client is None:
            session = _CheckedSession(self._server)
            session.verify = self._server.ca_bundle or True
            session.cert = self._server.client_certificate
            client = PrometheusConnect(
                url=self._server.url.rstrip("/"),
                headers=self._server.headers(),
                auth=self._server.basic_auth,
                retry=Retry(0),
                session=session,
                method="POST",
            )
            self._local.client = client
        return client


def _parse(result: Iterable[Any], url: str) -> list[Series]:
    series = []
    try:
        for item in result:
            pairs = item["values"] if "values" in item else [item["value"]]
            times = np.fromiter((pair[0] for pair in pairs), np.float64, len(pairs))
            values = np.fromiter((float(pair[1]) for pair in pairs), np.float64, len(pairs))
            labels = {str(name): str(value) for name, value in item["metric"].items()}
            series.append(Series(labels, times, values))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise PrometheusGarbled(f"{url}: a series without plain float samples: {_short(error)}") from error
    return series


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
