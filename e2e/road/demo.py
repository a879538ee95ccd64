"""`make demo`: from nothing to promoted, and back to the plain arm when the drafts stop fitting. Ends with 0 only if
every step is confirmed from API objects, the audit log and the client's own log.

  DECAY=acceptance (default)  the drafts stop fitting once speculation has served for a while
  DECAY=none                  nothing is injected: there must be no roll-back
  CLUSTER=embedded|existing   which cluster (python3 -m e2e.cluster says more)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.road.access import ROOT, Access, Object, RoadError, cluster_up, find_access, wait_until
from e2e.road.example import (
    RESOURCE,
    Place,
    acceptance_decay,
    faults_secret,
    inject,
    load_quickstart,
    namespace,
    overlaid,
)
from e2e.road.install import OPERATOR_NAMESPACE, build_images, deployment_name, install, print_objects
from e2e.road.narrator import Narrator
from e2e.road.recorder import Recorder, utc
from e2e.road.report import write_report
from e2e.road.traffic_process import TrafficProcess
from e2e.road.verify import Check, Road, alerts, rollbacks_counted, verify

PLACE = Place("demo", "quickstart")
FOLDER = ROOT / "build" / "demo"
DECAYED_ACCEPTANCE = (0.06, 0.05, 0.05)
"""The drafts then cost a few percent and bring nothing: measured again, the gain is gone."""
SERVE_SECONDS = 180.0
PROMOTE_SECONDS = 900.0
ROLLBACK_SECONDS = 720.0
STABLE_SECONDS = {"acceptance": 20.0, "none": 120.0}
GONE_WRONG = ("Held", "RolledBack", "Exhausted")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the person asked for."""

    decay: str
    cluster: str

    @staticmethod
    def from_environment() -> Wanted:
        """DECAY and CLUSTER. Raises RoadError."""
        decay = os.environ.get("DECAY", "acceptance")
        if decay not in STABLE_SECONDS:
            raise RoadError(f"DECAY={decay}: it is acceptance or none")
        return Wanted(decay, os.environ.get("CLUSTER", "embedded"))


def prepare(access: Access) -> tuple[Object, float]:
    """The example applied in a namespace of its own, after what an earlier run left is gone.

    Returns the object and the moment of the apply: the zero of every time that the transcript and the report show.
    """
    if access.get("namespace", PLACE.namespace) is not None:
        remove(access, PLACE)
    example = overlaid(load_quickstart(), PLACE)
    objects = [namespace(PLACE.namespace), faults_secret(PLACE.namespace, []), example]
    print(
        "\napplying examples/quickstart.yaml, with a Secret mounted through which the simulated engine's faults come:"
    )
    print_objects([example])
    print(flush=True)
    began = time.time()
    access.apply(objects)
    applied = access.get(RESOURCE, PLACE.name, PLACE.namespace)
    assert applied is not None
    print(f"times below: minutes and seconds since the apply at {utc(began)}\n", flush=True)
    return applied, began


def remove(access: Access, place: Place, wait: bool = True) -> None:
    """Delete a deployment of an earlier run and wait, if asked, until its children are gone: owner references do it."""
    if access.get(RESOURCE, place.name, place.namespace) is None:
        return
    print(f"removing {place.namespace}/{place.name} of an earlier run", flush=True)
    words = ["delete", RESOURCE, place.name, "-n", place.namespace, "--cascade=foreground", "--timeout=400s"]
    words += [] if wait else ["--wait=false"]
    access.kubectl(*words, seconds=420)


def walk(access: Access, wanted: Wanted, narrator: Narrator, traffic: TrafficProcess) -> float | None:
    """The road itself. Returns when the decay was injected. Raises RoadError where it does not go on."""
    recorder = narrator.recorder
    narrator.follow("the plain arm serves", lambda: _phase(recorder) not in ("", "Deploying"), SERVE_SECONDS)
    wait_until("the gateway answers for the example", lambda: traffic.answers(), 60)
    traffic.start()
    narrator.say(
        "traffic", f"{traffic.rate:g} requests/s and {traffic.long_streams} streams of over a minute, for good"
    )
    narrator.follow("promoted", lambda: _arrived(recorder, "Speculative"), PROMOTE_SECONDS)
    stable = STABLE_SECONDS[wanted.decay]
    began = time.time()
    narrator.follow(f"speculation serves for {stable:.0f} s", lambda: time.time() - began >= stable, stable + 60)
    if wanted.decay == "none":
        narrator.say("no decay", f"DECAY=none: {stable:.0f} s after promotion nothing has been touched")
        return None
    injected = time.time()
    pods = inject(access, PLACE, [acceptance_decay(DECAYED_ACCEPTANCE)])
    rates = ", ".join(f"{rate:.2f}" for rate in DECAYED_ACCEPTANCE)
    narrator.say("DECAY", f"the drafts stop fitting: acceptance per position falls to {rates} in {pods} pods, for good")
    narrator.follow("rolled back", lambda: _phase(recorder) in ("RolledBack", "Exhausted"), ROLLBACK_SECONDS)
    narrator.follow("the alert is in Alertmanager", lambda: _alerted(access, injected), 90)
    names = sorted({one["labels"]["alertname"] for one in alerts(access, PLACE, injected)})
    narrator.say("alert", f"Alertmanager has {', '.join(names)}")
    return injected


def _phase(recorder: Recorder) -> str:
    return str(recorder.status.get("phase", ""))


def _arrived(recorder: Recorder, phase: str) -> bool:
    """Whether a phase is reached. Raises RoadError where the road ends elsewhere."""
    now = _phase(recorder)
    judged = [one for one in recorder.decisions if one["action"] in ("Judge", "RefuseCandidate")]
    resting = now == "Baseline" and judged and recorder.status.get("trials")
    if now in GONE_WRONG or resting:
        last = recorder.status.get("lastDecision", {})
        raise RoadError(f"phase {now} instead of {phase}: {last.get('reason')}: {last.get('message')}")
    return now == phase


def _alerted(access: Access, since: float) -> bool:
    return any(one["labels"]["alertname"] == "SpecfleetRolledBack" for one in alerts(access, PLACE, since))


def summary(checks: Sequence[Check], minutes: float, report: Path) -> None:
    """The table at the end."""
    width = max(len(check.name) for check in checks)
    print(f"\n{'':4}{'check':<{width}}  what was found")
    for check in checks:
        said = check.said if len(check.said) <= 240 else f"{check.said[:237]}..."
        print(f"{'ok' if check.passed else 'NO':<4}{check.name:<{width}}  {said}")
    failed = sum(not check.passed for check in checks)
    verdict = "the road is confirmed" if failed == 0 else f"{failed} of {len(checks)} checks failed"
    print(f"\n{verdict} after {minutes:.1f} minutes, cluster and images included; report: {report}")


def look_around(access: Access) -> None:
    """What a person may want to do next."""
    print(f"""
look around:
  export KUBECONFIG={access.kubeconfig}
  kubectl -n {PLACE.namespace} get sd,sb                       the deployment and its evidence
  kubectl -n {PLACE.namespace} describe sd {PLACE.name}        conditions, decisions, Events
  kubectl -n {PLACE.namespace} get httproute,deploy,pods       what serves
  kubectl -n {OPERATOR_NAMESPACE} logs deploy/{deployment_name(access)}
  Prometheus {access.prometheus_url}   Alertmanager {access.alertmanager_url}
clean up:
  kubectl delete namespace {PLACE.namespace}       the example
  make cluster-down                                the whole test cluster; what was built stays cached""")


def run(wanted: Wanted) -> int:
    """All of it. Returns the exit code."""
    started = time.monotonic()
    cluster_up()
    access = find_access()
    build_images()
    deployment = install(access)
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    print(f"specfleet runs in namespace {OPERATOR_NAMESPACE} ({image})", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    applied, began = prepare(access)
    rollbacks = rollbacks_counted(access, PLACE)
    recorder = Recorder(access, PLACE)
    narrator = Narrator(recorder, began)
    requests = FOLDER / f"requests-{wanted.decay}.jsonl"
    requests.unlink(missing_ok=True)
    traffic = TrafficProcess(access.gateway_url, PLACE.hostname, str(applied["spec"]["model"]["name"]), requests)
    injected: float | None = None
    trouble: str | None = None
    recorder.start()
    try:
        injected = walk(access, wanted, narrator, traffic)
    except RoadError as error:
        trouble = str(error)
        narrator.say("STOPPED", trouble)
    finally:
        traffic.stop()
        narrator.say("traffic", "no new requests; the open streams are read to their end")
        whole = traffic.wait()
        recorder.stop()
        narrator.tell()
    generation = int(applied["metadata"]["generation"])
    road = Road(access, PLACE, recorder, requests, began, wanted.decay != "none", generation, rollbacks)
    checks = [*([Check("the road goes on", False, trouble)] if trouble else []), *verify(road)]
    if not whole:
        checks.insert(0, Check("the client ended", False, "it was killed: requests are missing in its log"))
    report = FOLDER / f"report-{wanted.decay}.html"
    write_report(road, checks, time.time(), injected, report)
    summary(checks, (time.monotonic() - started) / 60, report)
    if trouble:
        show_operator_log(access)
    look_around(access)
    return 0 if all(check.passed for check in checks) else 1


def show_operator_log(access: Access) -> None:
    """The operator's last words, where the road stopped."""
    words = ["logs", "-n", OPERATOR_NAMESPACE, f"deployment/{deployment_name(access)}", "--tail=25"]
    print(f"\nthe operator's last lines:\n{access.kubectl(*words, check=False).stdout}", flush=True)


def main() -> None:
    """Run the demo; an interruption leaves the cluster as it is."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = run(Wanted.from_environment())
    except (RoadError, subprocess.SubprocessError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(f"interrupted: the example stays in namespace {PLACE.namespace}; run `make demo` again to start over")
    sys.exit(code)


if __name__ == "__main__":
    main()
