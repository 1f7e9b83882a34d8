# SPDX-License-Identifier: Apache-2.0
"""Which values to keep: the least time within a budget, by a simulation of the step's memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ebb._compiled.joint import Event, Joint

# A value to keep and one to let go.
_Move = tuple[int | None, int | None]

_SLACK = 2


@dataclass(frozen=True)
class Course:
    """A step that keeps some values: its peak, bytes kept, bytes above the budget added up over all moments, and what is computed
    again in how many seconds."""

    kept: frozenset[int]
    peak: int
    bytes: int
    over: int
    seconds: float
    again: tuple[int, ...]


class Chooser:
    def __init__(self, joint: Joint):
        self._values = joint.values
        self._events = _merged(joint.events)
        self._users: list[list[int]] = [[] for _ in joint.values]
        for k, value in enumerate(joint.values):
            for one in value.needs:
                self._users[one].append(k)
        changes = [(value.born, k, True) for k, value in enumerate(joint.values)]
        changes += [(value.gone + 1, k, False) for k, value in enumerate(joint.values)]
        self._changes = [(k, comes) for _, k, comes in sorted(changes)]
        self.needed = frozenset(k for event in self._events for k in event.needs)
        self.stock = self.run(self.needed)

    def run(self, kept: Iterable[int], budget: int = 0) -> Course:
        """What is never computed again is kept where it is needed, asked for or not; what is not needed is not."""
        asked = set(kept)
        keeps: set[int] = set()
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        decoded: set[tuple[int, int]] = set()

        def read(k: int, now: int) -> None:
            stack = [k]
            while stack:
                one = stack.pop()
                if one not in last:
                    if one in asked or self._values[one].seconds == math.inf:
                        keeps.add(one)
                    else:
                        stack.extend(self._values[one].needs)
                        decoded.update((now, two) for two in self._values[one].whole)
                        first[one] = now
                last[one] = now

        for now, event in enumerate(self._events):
            for k in event.needs:
                read(k, now)
            decoded.update((now, k) for k in event.whole)
        held = [0] * (len(self._events) + 1)
        for k, end in last.items():
            size = self._values[k].kept if k in keeps else self._values[k].bytes
            held[first.get(k, 0)] += size
            held[end + 1] -= size
        for now, k in decoded:
            if k in keeps and self._values[k].code is not None:
                held[now] += self._values[k].bytes
                held[now + 1] -= self._values[k].bytes
        peak, over = self._forward(keeps, budget)
        there = 0
        for change, event in zip(held, self._events):
            there += change
            moment = there + event.gradients
            peak = max(peak, moment)
            over += max(0, moment - budget)
        return Course(
            frozenset(keeps),
            peak,
            sum(self._values[k].kept for k in keeps),
            over,
            sum(self._values[k].seconds for k in first),
            tuple(first),
        )

    def _forward(self, keeps: set[int], budget: int) -> tuple[int, int]:
        now = peak = over = 0
        for k, comes in self._changes:
            value = self._values[k]
            if comes:
                now += value.bytes
                peak = max(peak, now)
                over += max(0, now - budget)
            else:
                now += (value.kept if k in keeps else 0) - value.bytes
        return peak, over

    def cheapest(self) -> Course:
        """Nothing that takes long runs again. Of what is computed within other operations that is kept which makes the peak lower, or
        else takes fewer bytes."""
        best = self.stock
        while True:
            before = best
            for k in sorted(self.needed, key=lambda k: -self._values[k].bytes):
                if not self._values[k].heavy and k in best.kept:
                    best = self._lower(best, best.kept - {k})
            for k in sorted(best.again, key=lambda k: -self._values[k].bytes):
                best = self._lower(best, best.kept | {k})
            if best is before:
                return best

    def _lower(self, course: Course, kept: Iterable[int]) -> Course:
        """The course that keeps those, if it holds less than another at its peak, or else keeps fewer bytes, and runs nothing heavy again."""
        found = self.run(kept)
        if (found.peak, found.bytes) < (course.peak, course.bytes) and not any(
            self._values[k].heavy for k in found.again
        ):
            return found
        return course

    def within(self, budget: int) -> Course | None:
        """The least time found within a budget; None: nothing that was found fits. One value after another is let go, or kept after
        all: what saves most of what is above the budget, for the time that it takes."""
        if self.stock.peak <= budget:
            return self.stock
        course = self.run(self.cheapest().kept, budget)
        gains: dict[_Move, float] = {}
        while course.peak > budget:
            found = self._better(course, budget, self._single(course), gains)
            if found is None:
                found = self._better(course, budget, self._double(course), {})
            if found is None:
                return None
            for k in found.kept ^ course.kept:
                for one in self._near(k):
                    gains.pop((None, one), None)
                    gains.pop((one, None), None)
            course = found
        return self._tidied(course, budget)

    def _single(self, course: Course) -> Iterator[_Move]:
        for k in course.kept:
            if self._values[k].seconds < math.inf:
                yield None, k
        for k in course.again:
            yield k, None

    def _double(self, course: Course) -> Iterator[_Move]:
        for k in course.kept:
            if self._values[k].seconds == math.inf:
                continue
            for one in self._near(k) - course.kept:
                yield one, k

    def _near(self, k: int) -> set[int]:
        near = {*self._values[k].needs, *self._users[k]}
        return near | {two for one in near for two in (*self._values[one].needs, *self._users[one])}

    def _better(self, course: Course, budget: int, moves: Iterator[_Move], gains: dict[_Move, float]) -> Course | None:
        """The course after the move that gains most. Moves are tried in the order of what they gained when they were tried last, until
        the best so far gains much more than the next did then: what a move gains seldom grows by another that is not near."""
        best, most = None, 0.0
        for move in sorted(moves, key=lambda move: -gains.get(move, math.inf)):
            if _SLACK * gains.get(move, math.inf) < most:
                break
            more, less = move
            found = self.run(({*course.kept, more} if more is not None else course.kept) - {less}, budget)
            saved = course.over - found.over
            gains[move] = saved / max(found.seconds - course.seconds, 1e-9) if saved > 0 else 0.0
            if gains[move] > most:
                best, most = found, gains[move]
        return best

    def _tidied(self, course: Course, budget: int) -> Course:
        """Values for which there is room after all are kept, those that save most time for their bytes first."""
        for k in sorted(course.again, key=lambda k: -self._values[k].seconds / max(self._values[k].bytes, 1)):
            found = self.run(course.kept | {k}, budget)
            if found.peak <= budget and found.seconds < course.seconds:
                course = found
        return course

    def least(self, low: int = 0) -> Course:
        """The lowest peak that the search reaches, which is known to be above `low`."""
        best = min((self.stock, self.cheapest()), key=lambda course: course.peak)
        while best.peak - low > max(best.peak // 32, 1):
            middle = (low + best.peak) // 2
            found = self.within(middle)
            if found is None:
                low = middle
            else:
                best = found
        return best


def _merged(events: list[Event]) -> list[Event]:
    """Operations that read nothing are a part of the one before them."""
    found: list[Event] = []
    for event in events:
        if found and not event.needs:
            found[-1].gradients = max(found[-1].gradients, event.gradients)
        else:
            found.append(Event(event.needs, event.gradients, event.whole))
    return found
