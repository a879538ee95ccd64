"""Labels and annotations under specfleet.dev/ (docs/reference/labels.md)."""

from specfleet.api.base import GROUP

DEPLOYMENT = f"{GROUP}/deployment"
ARM = f"{GROUP}/arm"
FINGERPRINT = f"{GROUP}/fingerprint"
ROLE = f"{GROUP}/role"
BENCHMARK = f"{GROUP}/benchmark"
COMMAND = f"{GROUP}/command"
SECRET_SERVERS = f"{GROUP}/prometheus-servers"
"""On a Secret of spec.monitoring.prometheus.auth: the addresses that it may be sent to, separated by commas."""
SECRET_NAMESPACES = f"{GROUP}/namespaces"
"""On such a Secret: whose deployments may use it; absent: all that the operator works for."""
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "specfleet"

ROLE_SERVING = "serving"
ROLE_BENCHMARK = "benchmark"
ROLE_WORKER = "worker"
"""Pods of an engine over several nodes that are not its leader: no Service, monitor or scale selector chooses them."""
ROLE_DRIVER = "driver"
ROLE_PREFLIGHT = "preflight"
