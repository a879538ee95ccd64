"""Runs a scenario on the production core (watch and decide): one deployment, or many alike, in lock-step."""

from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from specfleet.api.deployment import DeploymentSpec
from specfleet.decide.checkpoint import Checkpoint, refusal
from specfleet.decide.checkpoint_format import decode, encode, shard_of
from specfleet.decide.reference import ROLES
from specfleet.decide.sums import Slots
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer, WatchReport
from specfleet.decide.watch_scope import watch_target
from specfleet.decide.watch_target import Key
from specfleet.simulate.cluster import DEFAULT_SPEC, START, merged
from specfleet.simulate.engines import Engines, Layout
from specfleet.simulate.scenario import FaultKind, Scenario
from specfleet.simulate.story import Result, Story


class Simulation:
    """All deployments share one watch, as in the operator; each has a cluster of its own.

    A deployment is looked at only when something may happen to it: its pods move, a timer or a fault is due, or the
    watch has something to say. The windows of all of them are drawn and taken in at once.
    """

    def __init__(self, scenario: Scenario, copies: int = 1) -> None:
        spec = DeploymentSpec.model_validate(merged(DEFAULT_SPEC, scenario.spec))
        self.window_seconds = float(spec.window_seconds)
        self.watch = Watch()
        self._engines = Engines(scenario, self.window_seconds, spec.replicas, copies)
        self.stories = [Story(scenario, self._engines, self._report, number) for number in range(copies)]
        self._due = np.zeros(copies)
        self._rows = np.full(copies, -1, np.intp)
        self._broken: list[str | None] = [None] * copies
        """What a scripted fault of the metrics makes them answer."""
        self._layout: tuple[Layout, Slots] | None = None

    def run(self) -> list[Result]:
        """To the end of every story."""
        alive = np.ones(len(self.stories), bool)
        index = 0
        while alive.any():
            edge = START + timedelta(seconds=(index + 1) * self.window_seconds)
            awake = np.flatnonzero(alive & (self._due <= edge.timestamp()))
            for number in awake:
                self._live(self.stories[number], edge)
                alive[number] = not self.stories[number].over
            if any(story.operator_restarts for story in self.stories):
                self._replace_operator(alive, edge)
            self._watch(alive, awake, index, edge)
            index += 1
        for story in self.stories:
            story.judge()
        return [story.result for story in self.stories]

    def _report(self, key: Key) -> WatchReport:
        return self.watch.report(key)

    def _replace_operator(self, alive: NDArray[np.bool_], edge: datetime) -> None:
        """A fresh watch that knows what the checkpoints of the old one say, through their bytes."""
        shards: dict[int, list[Checkpoint]] = {}
        for key in sorted(self.watch.watched()):
            if (found := self.watch.checkpoint(key)) is not None:
                shards.setdefault(shard_of(key), []).append(found)
        self.watch = Watch()
        for members in shards.values():
            stored, _ = encode(members)
            self.watch.saved.add(one for one in decode(stored) if refusal(one, edge.timestamp()) is None)
        self._rows[:] = -1
        for story in self.stories:
            story.operator_restarts = False
            if alive[story.member.number]:
                self._aim(story, edge)

    def _live(self, story: Story, edge: datetime) -> None:
        number, status = story.member.number, story.cluster.status
        before = story.picture()
        story.live(edge, self.window_seconds)
        active = list(story.active(edge))
        broken = next((one.fault.answer for one in active if one.fault.kind is FaultKind.METRICS), None)
        same = before == story.picture() and status is story.cluster.status and self._broken[number] == broken
        story.member.active = active
        if story.over:
            self._layout = None
        elif not same or self._rows[number] < 0 or story.cold(2 * self.window_seconds):
            self._broken[number] = broken
            self._aim(story, edge)

    def _aim(self, story: Story, edge: datetime) -> None:
        """The cluster has moved: what the watch looks at, and which pods count."""
        number, cluster, member = story.member.number, story.cluster, story.member
        if cluster.status is None or cluster.status.stable is None:
            return
        target = watch_target(cluster.observation(), cluster.status, cluster.now)
        broken = self._broken[number]
        answer = (Answer.OK, "") if broken is None else (Answer(broken), f"scripted: {broken}")
        record = self.watch.aim(target, dict.fromkeys(target.arms, answer))
        self._rows[number] = record.row
        slots = {
            pod.name: self.watch.pod_slot(record, pod.name, role) for role, pods in target.arms.items() for pod in pods
        }
        begin = edge.timestamp() - self.window_seconds
        member.places = self._engines.places(member, target, slots, begin)
        member.arms = (bool(target.arms.get(ROLES[0])), bool(target.arms.get(ROLES[1])))
        member.drafts = target.method is not None
        self._layout = None

    def _watch(self, alive: NDArray[np.bool_], awake: Slots, index: int, edge: datetime) -> None:
        """Close the window of all, and tell those to whom it may matter."""
        watched = np.flatnonzero(alive & (self._rows >= 0))
        if self._layout is None:
            lit = [number for number in watched if self._broken[number] is None]
            self._layout = (
                Layout([self.stories[number].member for number in lit], self._engines.columns),
                self._rows[lit],
            )
        layout, rows = self._layout
        for member in layout.members:
            if member.active:
                member.active = list(self.stories[member.number].active(edge))
        if rows.size:
            self.watch.absorb(rows, self._engines.window(index, layout, edge.timestamp() - self.window_seconds))
        stirred = np.zeros(alive.size, bool)
        stirred[watched] = self.watch.stirred(self._rows[watched])
        told = stirred.copy()
        told[awake] = True
        for number in np.flatnonzero(alive & told):
            story = self.stories[number]
            story.sleep(edge)
            news = bool(stirred[number]) or story.stirred or story.attentive or story.cluster.moving
            story.windows, story.stirred = index + 1, bool(stirred[number])
            if self._rows[number] >= 0 and news:
                story.see(self.watch.report(story.cluster.key))
            self._due[number] = story.sleeps_until(self.window_seconds).timestamp()


def simulate(scenario: Scenario) -> Result:
    """Run one scenario."""
    return Simulation(scenario).run()[0]
