"""How many queries a fleet costs and what they select."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specfleet.telemetry.queries import METRICS, SERIES_PER_POD, SERIES_PER_QUERY, fleet_queries


def metrics(query: str) -> set[str]:
    found = re.search(r'__name__=~"([^"]*)"', query)
    assert found
    return set(found[1].split("|"))


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True), st.integers(1, 3000), max_size=40)
)
def test_every_namespace_is_asked_for_every_metric_exactly_once_and_chunks_stay_small(pods):
    queries = fleet_queries(pods, "namespace", 90)
    seen: dict[str, list[str]] = {name: [] for name in pods}
    for query in queries:
        found = re.search(r'namespace=~"([^"]*)"', query)
        assert found
        names = found[1].split("|")
        for name in names:
            seen[name] += metrics(query)
        share = len(metrics(query)) / len(METRICS)
        assert sum(pods[name] for name in names) * SERIES_PER_POD * share <= SERIES_PER_QUERY * 1.3
    assert all(sorted(found) == sorted(METRICS) for found in seen.values())
    total = sum(pods.values()) * SERIES_PER_POD
    assert len(queries) <= 2 * total / SERIES_PER_QUERY + 1


def test_one_or_fifty_deployments_of_a_few_pods_cost_one_query():
    assert len(fleet_queries({"a": 2}, "namespace", 90)) == 1
    assert len(fleet_queries({f"team-{i}": 4 for i in range(50)}, "namespace", 90)) == 1


def test_series_without_position_or_handler_are_selected_and_other_positions_are_not():
    (query,) = fleet_queries({"a": 1}, "exported_namespace", 12.5)
    assert 'exported_namespace=~"a"' in query
    position = re.search(r'position=~"([^"]*)"', query)
    handler = re.search(r'handler=~"([^"]*)"', query)
    assert position
    assert handler
    assert [bool(re.fullmatch(position[1], value)) for value in ("", "0", "1")] == [True, True, False]
    assert re.fullmatch(handler[1], "/v1/completions")
    assert re.fullmatch(handler[1], "/v1/chat/completions")
    assert not re.fullmatch(handler[1], "/metrics")
    assert query.endswith("[12500ms]")


def test_what_is_not_a_namespace_never_reaches_the_query():
    with pytest.raises(ValueError, match="not a namespace"):
        fleet_queries({'a"} or vector(1) #': 1}, "namespace", 60)
