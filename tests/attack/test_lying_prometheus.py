"""Answers that no Prometheus gives are a PrometheusError like any other failure: no data."""

import asyncio

import pytest
from specfleet.telemetry.prometheus import Prometheus, PrometheusError
from specfleet.telemetry.servers import MetricsServer

from tests.telemetry.fake_server import fake_prometheus

HEAD = b'{"status":"success","data":{"resultType":"matrix","result":['


@pytest.mark.parametrize(
    "result",
    [
        b'{"metric":[],"values":[[1,"1"]]}',
        b'{"metric":null,"values":[[1,"1"]]}',
        b'{"metric":{},"values":[[1,1' + b"0" * 400 + b"]]}",
        b'{"metric":{},"values":[[1' + b"0" * 400 + b',"1"]]}',
        b"[" * 100_000,
    ],
    ids=["labels-a-list", "labels-null", "value-beyond-a-float", "time-beyond-a-float", "nested-without-end"],
)
def test_a_lie_is_no_data(result: bytes) -> None:
    with fake_prometheus() as fake:
        fake.body = HEAD + result + b"]}}"
        client = Prometheus(MetricsServer(fake.url))
        try:
            with pytest.raises(PrometheusError):
                asyncio.run(client.range_vector('{__name__=~"up"}[60000ms]', 1000.0))
        finally:
            client.close()
