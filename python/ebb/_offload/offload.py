# SPDX-License-Identifier: Apache-2.0
"""ebb.offload: saved activations leave the device during the forward pass and come back ahead of the backward pass."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType

import torch

from ebb._base.errors import Error
from ebb._base.sizes import UNLIMITED, as_bytes
from ebb._offload.disk import Disk
from ebb._offload.mover import Mover
from ebb._offload.report import OffloadReport
from ebb._offload.saver import Saver
from ebb._tensor.host_pool import PAGE, HostPool
from ebb.tiers import FileTier, file_tier


class offload:
    """A context in which the tensors that autograd saves for the backward pass are moved off the device.

    CUDA tensors go to host memory, and to disk where ``disk`` is given; CPU tensors go to disk only. Gradients have the
    same bits as without. Make one object and enter it in every iteration: it keeps its pinned memory. The backward
    pass may run inside or outside of the ``with``.

    use_pin_memory: the pool's pages are locked, where that is possible; ``report`` says whether it was.
    use_streams: copies overlap with computation on streams of their own. None: yes, on CUDA.
    max_fwd_stash_size: at most that many copies are under way; their tensors still occupy the device.
    min_offload_size: tensors whose storage has fewer bytes stay.
    budget: bytes of saved tensors on the device: the newest, which are needed first and stay, those being copied, for
    which a quarter is set aside, and those read ahead. What is being written from host memory to disk is not counted.
    None: nothing stays, apart from what is copied or read ahead.
    pool: bytes of host memory, taken at the first use and kept. What does not fit goes to disk, else to memory that is
    not pinned. None: as much as was ever needed at once, up to half of the machine's memory.
    disk: a directory, or ``ebb.file_tier(directory, capacity)``. The oldest tensors go there. Files have no name and
    vanish with the object.
    read_ahead: bytes that the backward pass reads before it needs them.
    keep: a function of a tensor; where it says True the tensor stays.
    cpu_as_device: CPU tensors go through the pool like those of a device. It saves nothing; for tests.

    >>> import torch, ebb
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    >>> off = ebb.offload(pool="64MiB", disk="/tmp")
    >>> for _ in range(2):
    ...     with off:
    ...         loss = model(torch.ones(8, 64)).sum()
    ...     loss.backward()
    >>> off.report.moved.tensors > 0
    True
    """

    def __init__(
        self,
        use_pin_memory: bool = True,
        use_streams: bool | None = None,
        max_fwd_stash_size: int = 5,
        min_offload_size: int = 1024,
        *,
        budget: int | str | None = None,
        pool: int | str | None = None,
        disk: str | os.PathLike[str] | FileTier | None = None,
        read_ahead: int | str = "128MiB",
        keep: Callable[[torch.Tensor], bool] | None = None,
        cpu_as_device: bool = False,
    ):
        if not isinstance(max_fwd_stash_size, int) or max_fwd_stash_size < 1:
            raise Error(f"offload: max_fwd_stash_size is {max_fwd_stash_size!r}; it must be a whole number from 1 on")
        if keep is not None and not callable(keep):
            raise Error(f"offload: keep is {keep!r}; it must be a function of a tensor, or None")
        opened = _open_disk(disk)
        host = HostPool(
            None if pool is None else as_bytes(pool, "offload: pool"),
            bool(use_pin_memory) and torch.cuda.is_available(),
            PAGE if opened is not None else 512,
        )
        self._saver = Saver(
            Mover(host, opened, use_streams is None or bool(use_streams), max_fwd_stash_size),
            least=as_bytes(min_offload_size, "offload: min_offload_size"),
            budget=None if budget is None else as_bytes(budget, "offload: budget"),
            read_ahead=as_bytes(read_ahead, "offload: read_ahead"),
            keep=keep,
            cpu_as_device=bool(cpu_as_device),
        )
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._saver.pack, self._saver.unpack)

    def __enter__(self) -> offload:
        self._hooks.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._hooks.__exit__(kind, error, trace)
        self._saver.end()

    @property
    def report(self) -> OffloadReport:
        """What happened so far; a copy."""
        return self._saver.report()


def _open_disk(disk: str | os.PathLike[str] | FileTier | None) -> Disk | None:
    if disk is None:
        return None
    if isinstance(disk, FileTier):
        return Disk(disk, grows=disk.capacity == UNLIMITED)
    if isinstance(disk, (str, os.PathLike)):
        return Disk(file_tier(disk, UNLIMITED), grows=True)
    raise Error(f"offload: disk is {disk!r}; it must be a directory or an ebb.file_tier")
