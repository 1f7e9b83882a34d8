# SPDX-License-Identifier: Apache-2.0
"""Runs schedules of the package checkpoint_schedules on paper.

The interpreter follows the package's documentation of its actions: WORK holds one thing at a time, a checkpoint holds
what the Forward that wrote it stored, and it restarts no further than that Forward went.
"""

import checkpoint_schedules as cs


class Paper:
    """Runs a schedule on paper and remembers what it cost."""

    def __init__(self, steps):
        self.steps = steps
        self.at = 0  # where the forward stands; None when it cannot go on
        self.left = steps  # steps not yet reversed
        self.work = None  # what WORK holds: (restart steps, adjoint data steps)
        self.stores = {cs.StorageType.RAM: {}, cs.StorageType.DISK: {}}
        self.most = dict.fromkeys(self.stores, 0)
        self.forwards = 0
        self.forward_ended = False
        self.reverse_ended = False

    def run(self, actions):
        for action in actions:
            assert not self.reverse_ended, "an action after the end"
            getattr(self, type(action).__name__)(action)
            for storage, held in self.stores.items():
                self.most[storage] = max(self.most[storage], len(held))
        assert self.reverse_ended

    def Forward(self, a):
        assert a.n0 == self.at and a.n0 < a.n1 <= self.left
        steps = set(range(a.n0, a.n1))
        kept = (steps if a.write_ics else set(), steps if a.write_adj_deps else set())
        self.work = None
        if a.storage in self.stores:
            assert a.write_ics or a.write_adj_deps
            assert a.n0 not in self.stores[a.storage], "a checkpoint overwritten"
            self.stores[a.storage][a.n0] = kept
        else:
            assert a.storage == cs.StorageType.WORK
            self.work = kept if any(kept) else None
        self.at = a.n1
        self.forwards += len(steps)

    def Reverse(self, a):
        assert a.n1 == self.left and a.n0 < a.n1 and a.clear_adj_deps
        assert self.forward_ended and self.work is not None
        assert self.work[1] >= set(range(a.n0, a.n1)), "adjoint data missing"
        self.work = None
        self.left = a.n0

    def transfer(self, a, kept):
        assert self.work is None, "WORK is taken"
        if a.to_storage in self.stores:
            assert a.n not in self.stores[a.to_storage]
            self.stores[a.to_storage][a.n] = kept
        elif a.to_storage == cs.StorageType.WORK:
            assert a.n < self.left
            if kept[0]:
                assert kept[0] >= set(range(a.n, self.left)), "the checkpoint does not reach that far"
            self.at = a.n if kept[0] else None
            self.work = kept
        else:
            assert a.to_storage == cs.StorageType.NONE and isinstance(a, cs.Move)

    def Copy(self, a):
        self.transfer(a, self.stores[a.from_storage][a.n])

    def Move(self, a):
        self.transfer(a, self.stores[a.from_storage].pop(a.n))

    def EndForward(self, a):
        assert self.at == self.steps and not self.forward_ended
        self.forward_ended = True

    def EndReverse(self, a):
        assert self.left == 0
        assert not any(self.stores.values()), "checkpoints left behind"
        self.reverse_ended = True
