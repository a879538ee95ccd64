"""Labels and annotations under specfleet.dev/ (docs/reference/labels.md)."""

from specfleet.api.base import GROUP

DEPLOYMENT = f"{GROUP}/deployment"
ARM = f"{GROUP}/arm"
FINGERPRINT = f"{GROUP}/fingerprint"
ROLE = f"{GROUP}/role"
BENCHMARK = f"{GROUP}/benchmark"
COMMAND = f"{GROUP}/command"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "specfleet"

ROLE_SERVING = "serving"
ROLE_BENCHMARK = "benchmark"
ROLE_DRIVER = "driver"
ROLE_PREFLIGHT = "preflight"
