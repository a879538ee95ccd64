"""PodMonitor of the serving pods."""

from specfleet.api import labels
from specfleet.api.base import RawObject
from specfleet.api.deployment import SpeculativeDeployment
from specfleet.resources.metadata import base_labels, child

API_VERSION = "monitoring.coreos.com/v1"
KIND = "PodMonitor"


def pod_monitor(owner: SpeculativeDeployment) -> RawObject:
    """monitoring.coreos.com/v1 PodMonitor over both arms, at one interval."""
    monitoring = owner.spec.monitoring
    interval = f"{monitoring.scrape_interval_seconds}s"
    metadata = child(owner, owner.name, monitoring.pod_monitor_labels)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": {**base_labels(owner), labels.ROLE: labels.ROLE_SERVING}},
            "podMetricsEndpoints": [{"port": "http", "path": "/metrics", "interval": interval}],
        },
    }
