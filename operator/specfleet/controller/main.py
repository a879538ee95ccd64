"""Entry point: Kopf watches, authenticates and runs the lifecycle; everything else happens in app.py.

Handlers are `on.event` only: they put an object into the cache and a key into the queue, and decide nothing.
Kopf writes no finalizer, no annotation and no status.
"""

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import kopf

from specfleet.api import labels
from specfleet.controller.app import App
from specfleet.controller.settings import Settings, from_environment
from specfleet.kube import kinds
from specfleet.kube.kinds import Kind

log = logging.getLogger(__name__)


def build_registry(app: App) -> kopf.OperatorRegistry:
    """All handlers of the operator."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, id="login", errors=kopf.ErrorsMode.PERMANENT)
    def login(**fields: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**fields) or kopf.login_with_kubeconfig(**fields)

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = bool(app.settings.namespaces)
        settings.watching.server_timeout = 300
        settings.networking.request_timeout = 30
        settings.peering.standalone = True
        settings.process.ultimate_exiting_timeout = 20
        settings.background.cancellation_polling = 5
        for kind in kinds.WATCHED:
            settings.watching.label_selectors[kind.api_version, kind.plural] = labels.DEPLOYMENT
        await app.start()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await app.stop()

    @kopf.on.probe(registry=registry, id="operator", errors=kopf.ErrorsMode.PERMANENT)
    async def alive(**_: Any) -> str:
        trouble = app.healthy()
        if trouble is not None:
            raise kopf.PermanentError(trouble)
        return "ok"

    own = kinds.SPECULATIVE_DEPLOYMENT
    kopf.on.event(own.api_version, own.plural, registry=registry, id="deployment")(_deployment_seen(app))
    for kind in kinds.WATCHED:
        watch = kopf.on.event(kind.api_version, kind.plural, registry=registry, id=f"child-{kind.plural}")
        watch(_child_seen(app, kind))
    return registry


def _deployment_seen(app: App) -> Callable[..., Any]:
    async def seen(type: str | None, body: kopf.Body, **_: Any) -> None:
        app.see_deployment(type, dict(body))

    return seen


def _child_seen(app: App, kind: Kind) -> Callable[..., Any]:
    async def seen(type: str | None, body: kopf.Body, **_: Any) -> None:
        app.see_child(kind, type, dict(body))

    return seen


def main() -> int:
    """Run until told to stop. Exit code 2: the settings are unusable."""
    try:
        settings: Settings = from_environment()
    except ValueError as error:
        print(f"specfleet: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("kopf").setLevel("WARNING")
    logging.getLogger("aiohttp.access").setLevel("WARNING")
    app = App(settings)
    # Kopf would ask for the user's name, which a container's bare user id does not have.
    os.environ.setdefault("LOGNAME", "specfleet")
    kopf.run(
        registry=build_registry(app),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=f"http://0.0.0.0:{settings.probe_port}/healthz",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
