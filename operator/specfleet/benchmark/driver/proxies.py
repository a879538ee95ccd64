"""Arms are reached directly: what is measured through a proxy is the proxy."""

from collections.abc import MutableMapping
from urllib.parse import urlsplit

from .harness import Json


def name_direct_hosts(plan: Json, environment: MutableMapping[str, str]) -> None:
    """Add the arms' hosts to NO_PROXY, for this process and the client's, which both read it.

    The Job has the engines' environment, proxies included, for a tokenizer has to be downloaded through them; the
    client of vLLM 0.32 asks its environment for a proxy (aiohttp's trust_env). Where the name is given in small and in
    capital letters, the small one counts (urllib.request.getproxies_environment).
    """
    hosts = [urlsplit(str(arm["url"])).hostname or "" for arm in plan["arms"].values()]
    # An IPv6 address is compared with its brackets by urllib, without them by aiohttp.
    written = [form for host in hosts for form in ([host, f"[{host}]"] if ":" in host else [host])]
    given = environment.get("no_proxy", environment.get("NO_PROXY", ""))
    if given.strip() == "*":
        return
    listed = ",".join(dict.fromkeys(filter(None, [*given.split(","), *written])))
    environment["no_proxy"] = environment["NO_PROXY"] = listed
