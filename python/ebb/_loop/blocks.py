# SPDX-License-Identifier: Apache-2.0
"""What a loop or a chain of modules must offer to run in a budget."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor

Leaves = list[Any]  # tensors and None


class Explicit(Protocol):
    """Blocks that run forward and back by themselves. They change nothing but what is said here, all weigh the same but for the last,
    which may be lighter, and every leaf of the carry and every output has a gradient if anything has. Called without gradients and
    inside of `running`; `first`: what comes out of the block is wanted, since it has not run before. A carry that is returned has
    memory of its own. `begin`, `results`, `begin_backward` and `end_backward` are those of Blocks."""

    @property
    def recalls(self) -> bool:
        """They read the outputs again: the caller's graph keeps them, and `recall` gives them back before anything runs again."""

    @property
    def params(self) -> list[Tensor]:
        """What they use beside carry and inputs, and may have gradients."""

    @property
    def beside(self) -> int:
        """Bytes that a backward holds from its begin to its end, beside the gradients that it gives."""

    @property
    def made(self) -> int:
        """Bytes that `reverse` makes of the first block where a tape does not have them: keeping everything would keep these too."""

    @property
    def grows(self) -> int:
        """Bytes of a block's scratch, of the first one, that grow with its length, where its tape does not."""

    def trial(self) -> tuple[Any, list[Tensor]]:
        """Blocks to measure, these or others of which the first takes as much as any in a loop of whatever length, and their inputs."""

    def running(self) -> AbstractContextManager[None]:
        """Around a forward or a backward, in the thread that runs it."""

    def recall(self, ys: list[Tensor]) -> None:
        """The outputs, as `results` gave them."""

    def kept(self, carry: Leaves) -> Leaves:
        """What a block that runs again needs of the carry before it."""

    def advance(self, block: int, carry: Leaves, first: bool) -> Leaves:
        """The carry after."""

    def record(self, block: int, carry: Leaves, first: bool) -> tuple[Leaves, Any]:
        """The carry after, and the tape."""

    def held(self, tape: Any) -> list[Tensor]:
        """All tensors of a tape."""

    def adjoint(self, gradients: list[Tensor | None]) -> Leaves:
        """The gradients of the last carry as `reverse` takes them, in memory of their own."""

    def reverse(self, block: int, tape: Any, gradients: Leaves) -> Leaves:
        """The gradients of the carry before, from those of the carry after, whose memory they may have. The tape is used up."""

    def of_carry(self, gradients: Leaves) -> Leaves:
        """The gradients of the first carry, in its dtypes."""

    def of_params(self) -> list[Tensor | None]:
        """Their gradients, once all blocks are reversed."""

    def forget(self) -> None:
        """A backward is over, or will not go on: whatever it still holds goes."""


class Blocks(Protocol):
    """What the steps of a plan compute. `ys` are flat: all leaves of a time step, then of the next."""

    count: int
    length: int  # time steps in all of them
    name: str
    advice: str  # to whoever runs their function for the first time; empty where it is known what it does
    divisible: bool  # a block is several time steps, between which it can be stopped

    @property
    def explicit(self) -> Explicit | None:
        """The blocks themselves, where they say their derivative without autograd, which is not asked then."""

    @property
    def listed(self) -> bool:
        """All inputs are there before the loop begins."""

    @property
    def reduces(self) -> bool:
        """Outputs are added up from block to block."""

    def steps(self, block: int) -> int:
        """Time steps of one block."""

    def known_outputs(self) -> Any:
        """What the first block has shown of them."""

    def expect(self, known: Any) -> None:
        """Outputs as other blocks of the same function were seen to have them."""

    def sums(self) -> list[Tensor]:
        """Of the outputs by now, where they are added up."""

    def going_on_from(self, sums: list[Tensor]) -> AbstractContextManager[None]:
        """A block that runs inside adds its outputs to these, where they are added up."""

    def inputs_with_gradient(self) -> list[bool]:
        """Which inputs want one."""

    def inputs(self, block: int, gradients: bool) -> list[Tensor]:
        """Of one block, on the compute device and cut off from any graph; with `gradients` those that want one are
        leaves that require it."""

    def run(self, block: int, carry: Leaves, inputs: list[Tensor]) -> tuple[Leaves, list[Tensor]]: ...

    def between(self, look: Callable[[], None] | None) -> None:
        """What is called after each time step of a block that runs, from now on, where a block has several."""

    def output_flags(self, ys: list[Tensor]) -> list[bool]:
        """Which outputs have gradients, by the ys of one block."""

    def begin(self) -> None:
        """A forward begins."""

    def keep(self, block: int, ys: list[Tensor]) -> None:
        """The block has run for the first time."""

    def results(self) -> list[Tensor]:
        """The outputs, after a forward."""

    def begin_backward(self, gradients: list[Tensor | None]) -> None:
        """Of the outputs."""

    def output_gradients(self, block: int) -> list[Tensor | None]:
        """One for each of its ys."""

    def take_input_gradients(self, block: int, gradients: list[Tensor | None]) -> None:
        """Of its inputs, in their order; None where there is none."""

    def end_backward(self) -> list[Tensor | None]:
        """The gradients of all inputs."""


class OutputsApart:
    """The part of Blocks about outputs that are added up, for blocks whose are not."""

    listed = True
    reduces = False

    @property
    def explicit(self) -> Explicit | None:
        return None

    def known_outputs(self) -> Any:
        return None

    def expect(self, known: Any) -> None:
        pass

    def sums(self) -> list[Tensor]:
        return []

    def going_on_from(self, sums: list[Tensor]) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


class CarryOnly(OutputsApart):
    """The part of Blocks about inputs, outputs and time steps, for blocks that have none."""

    divisible = False

    def steps(self, block: int) -> int:
        return 1

    def inputs_with_gradient(self) -> list[bool]:
        return []

    def between(self, look: Callable[[], None] | None) -> None:
        pass

    def inputs(self, block: int, gradients: bool) -> list[Tensor]:
        return []

    def output_flags(self, ys: list[Tensor]) -> list[bool]:
        return []

    def begin(self) -> None:
        pass

    def keep(self, block: int, ys: list[Tensor]) -> None:
        pass

    def results(self) -> list[Tensor]:
        return []

    def begin_backward(self, gradients: list[Tensor | None]) -> None:
        pass

    def output_gradients(self, block: int) -> list[Tensor | None]:
        return []

    def take_input_gradients(self, block: int, gradients: list[Tensor | None]) -> None:
        pass

    def end_backward(self) -> list[Tensor | None]:
        return []
