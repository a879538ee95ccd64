"""Small standard-library programs that run inside the engine's container (python3 -c), told what to do by environment.

They exist because /health answers 200 from engines that cannot complete (vllm#39863), and because SIGTERM cuts streams
unless the pod has left the endpoints and finished its requests first (measured on vLLM 0.32, docs/architecture.md).
The container's environment may name a proxy, for downloads of models: nothing here goes through it.
"""

PROVE = """
import json, os, sys, urllib.request
base = "http://127.0.0.1:" + os.environ["SPECFLEET_PORT"]
body = json.dumps({"model": os.environ["SPECFLEET_MODEL"], "prompt": "ready?", "max_tokens": 2, "temperature": 0})
request = urllib.request.Request(base + "/v1/completions", body.encode(), {"Content-Type": "application/json"})
if os.environ.get("VLLM_API_KEY"):
    request.add_header("Authorization", "Bearer " + os.environ["VLLM_API_KEY"])
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    answer = json.load(direct.open(request, timeout=float(os.environ["SPECFLEET_PROVE_TIMEOUT"])))
except OSError as error:
    sys.exit("no completion yet: %s" % error)
seen, wanted = answer.get("system_fingerprint"), os.environ["SPECFLEET_FINGERPRINT"]
if not answer.get("choices"):
    sys.exit("a completion without choices: %.200s" % answer)
if seen != wanted:
    sys.exit("answered with fingerprint %s, expected %s" % (seen, wanted))
"""
"""Start-up probe: the pod is not ready until it has answered a completion with the expected fingerprint."""

DRAIN_HOST = "SPECFLEET_DRAIN_HOST"
"""Whose requests DRAIN waits for; absent: the pod's own."""

DRAIN = """
import errno, os, re, socket, time, urllib.request
base = "http://" + os.environ.get("SPECFLEET_DRAIN_HOST", "127.0.0.1") + ":" + os.environ["SPECFLEET_PORT"]
deadline = time.monotonic() + float(os.environ["SPECFLEET_DRAIN_SECONDS"])
time.sleep(float(os.environ["SPECFLEET_SETTLE_SECONDS"]))
pattern = re.compile(r"^vllm:num_requests_(?:running|waiting)\\{[^}]*\\} ([0-9.e+]+)$", re.M)
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
gone = (errno.ECONNREFUSED, errno.EHOSTUNREACH, socket.EAI_NONAME)
quiet = 0
while time.monotonic() < deadline and quiet < 2:
    try:
        text = direct.open(base + "/metrics", timeout=5).read().decode()
        busy = sum(float(value) for value in pattern.findall(text))
    except Exception as error:
        cause = getattr(error, "reason", error)
        if getattr(cause, "errno", None) in gone:
            break
        busy = 1
    quiet = quiet + 1 if busy == 0 else 0
    time.sleep(0.5)
"""
"""preStop: wait until the endpoint is gone everywhere and the running requests are done. SIGTERM comes after it.

An engine that answers late, with half an answer or with an error is busy; only one that is gone (refused, no such host)
is not waited for."""
