"""One pod that alone ends again and again may have a bad GPU or node: it is replaced once a day, and then only told."""

from specfleet.api.status import DeploymentStatus, ReplacedPod
from specfleet.decide import budget
from specfleet.decide.faults import Fault, lone_fault
from specfleet.decide.observation import ArmView
from specfleet.decide.plan import PodRef
from specfleet.decide.turn import Turn

RESTART_POD = "RestartPod"


def replace_once(turn: Turn, arm: ArmView, fault: Fault) -> bool:
    """Delete the fault's pod, so that its successor may land elsewhere. False: the arm has had one replaced today.

    Where a successor fares no better, deleting it again and again helps nobody. It is no action of the day.
    """
    pod = next((one for one in arm.pods if one.name == fault.pod), None)
    if pod is None:
        return False
    today = [one for one in turn.status.replaced_pods if turn.now - one.time < budget.DAY]
    known = next((one for one in today if one.arm == arm.fingerprint), None)
    if known is not None and known.uid != pod.uid:
        return False
    if known is None:
        turn.decide(RESTART_POD, fault.reason, f"replacing pod {pod.name}: {fault.message}")
        replaced = ReplacedPod(arm=arm.fingerprint, pod=pod.name, uid=pod.uid, time=turn.now)
        turn.set(replaced_pods=[*today, replaced][-8:])
    # Said again until it goes: a crash between the decision and the deletion must not leave the pod.
    ref = PodRef(pod.name, pod.uid)
    if ref not in turn.restarts:
        turn.restarts.append(ref)
    return True


def replace_lone(turn: Turn, *arms: ArmView | None) -> None:
    """As replace_once, for arms that an exchange waits for and that nothing else looks after."""
    for arm in arms:
        fault = lone_fault(arm, turn.obs.now)
        if arm is not None and fault is not None:
            replace_once(turn, arm, fault)


def being_replaced(status: DeploymentStatus, arm: ArmView, fault: Fault) -> bool:
    """Whether the fault's pod is the one that is on its way out: a person need not be called for it."""
    uids = {one.uid for one in status.replaced_pods}
    return any(pod.name == fault.pod and pod.uid in uids for pod in arm.pods)
