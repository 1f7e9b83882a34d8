# SPDX-License-Identifier: Apache-2.0
"""ebb.scan and ebb.while_loop over dataclasses and what is registered with torch.utils._pytree."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import BATCH, WIDTH, T, numbers  # noqa: E402
from scan_oracle import gradients, loop, same, weighted  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils import _pytree  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


@dataclasses.dataclass
class Plain:
    h: Tensor
    c: Tensor


@dataclasses.dataclass(frozen=True)
class Frozen:
    h: Tensor
    c: Tensor
    gone: Tensor | None = None


@dataclasses.dataclass
class Slotted:
    __slots__ = ("c", "h")
    c: Tensor
    h: Tensor


@dataclasses.dataclass
class Checked:
    """Takes no other tensors, and computes one field."""

    h: Tensor
    c: Tensor
    both: Tensor = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        assert isinstance(self.h, Tensor)
        self.both = self.h + self.c


@dataclasses.dataclass
class Deep:
    inner: Plain
    rest: dict[str, Plain]


class Registered:
    def __init__(self, h: Tensor, c: Tensor, name: str = "one"):
        self.h, self.c, self.name = h, c, name


_pytree.register_pytree_node(
    Registered, lambda it: ([it.h, it.c], it.name), lambda parts, name: Registered(*parts, name)
)


@dataclasses.dataclass
class RegisteredData:
    """Registered in another order than its fields have."""

    h: Tensor
    c: Tensor


_pytree.register_pytree_node(
    RegisteredData, lambda it: ([it.c, it.h], None), lambda parts, _: RegisteredData(*[*parts][::-1])
)

KINDS = [Plain, Frozen, lambda h, c: Slotted(h=h, c=c), Checked, Registered, RegisteredData]
NAMES = ["plain", "frozen", "slotted", "checked", "registered", "registered dataclass"]


def compared(wrap, unwrap, budget):
    """A loop over these structures against one over tuples."""
    cell = torch.nn.LSTMCell(WIDTH, 4)
    zero, xs = (numbers(BATCH, 4), numbers(BATCH, 4)), numbers(T, BATCH, WIDTH)

    def plainly(carry, x):
        h, c = cell(x, carry)
        return (h, c), (h * 2, c.tanh())

    def f(tree, x):
        carry, y = plainly(unwrap(tree), x)
        return wrap(*carry), wrap(*y)

    wanted = [*zero, xs, *cell.parameters()]
    carry, ys = loop(plainly, zero, xs)
    theirs = gradients(weighted(carry, ys), wanted)
    found_carry, found_ys = ebb.scan(f, wrap(*zero), xs, budget=budget)
    same((unwrap(found_carry), unwrap(found_ys)), (carry, ys))
    same(gradients(weighted(unwrap(found_carry), unwrap(found_ys)), wanted), theirs)
    return found_carry, found_ys


@pytest.mark.parametrize("budget", ["2400B", 10**9, None], ids=["small", "ample", "none"])
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_dataclasses_and_registered_nodes(kind, budget):
    found = compared(kind, lambda tree: (tree.h, tree.c), budget)
    assert all(type(tree) is type(kind(*numbers(2, 3))) for tree in found)
    assert Plain not in _pytree.SUPPORTED_NODES


def test_dataclasses_inside_of_others():
    def wrap(h, c):
        return (Deep(Plain(h, h * 1), {"b": Plain(c, c * 1)}), [Frozen(h * 1, c * 1)])

    carry, _ = compared(wrap, lambda tree: (tree[0].inner.h, tree[0].rest["b"].h), "4KiB")
    assert type(carry[0].rest["b"]) is Plain and type(carry[1][0]) is Frozen and carry[1][0].gone is None


def test_dataclasses_as_inputs():
    weight, xs = numbers(WIDTH), numbers(T, WIDTH)

    def f(h, x):
        h = (h * weight + x.h * x.c).tanh()
        return h, h

    h, hs = loop(lambda h, x: f(h, Plain(*x)), torch.zeros(WIDTH), (xs, xs.detach()))
    wanted = gradients(weighted(h, hs), [weight, xs])
    found = ebb.scan(f, torch.zeros(WIDTH), Plain(xs, xs.detach()), budget=500, chunk=1)
    same(found, (h, hs))
    same(gradients(weighted(*found), [weight, xs]), wanted)
    assert ebb.last_report().strategy != "store_all"


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_a_while_loop_over_them(kind):
    weight = numbers(WIDTH)

    def run(call, **options):
        def f(carry):
            return kind((carry.h * weight).tanh(), carry.c + 1)

        carry = call(lambda carry: bool(carry.c < 9), f, kind(torch.ones(WIDTH), torch.zeros(())), **options)
        return carry.h, *gradients(carry.h.sum(), [weight])

    def by_hand(cond, f, carry):
        while cond(carry):
            carry = f(carry)
        return carry

    same(run(ebb.while_loop, budget="700B"), run(by_hand))


@pytest.mark.parametrize(
    "other",
    [
        lambda it: Frozen(it.h, it.c),
        lambda it: (it.h, it.c),
        lambda it: Plain(it.h, (it.c, it.c)),
        lambda it: Plain(it.h, Plain(it.c, it.c)),
    ],
    ids=["another class", "a tuple", "a deeper one", "a dataclass for a tensor"],
)
def test_another_structure_is_refused(other):
    weight = numbers(WIDTH)

    def f(carry, t):
        carry = Plain(carry.h * weight, carry.c)
        return other(carry) if int(t) == 5 else carry, None

    with pytest.raises(ebb.Error, match="init changes its structure.*same structure at every step"):
        ebb.scan(f, Plain(numbers(WIDTH), numbers(WIDTH)), torch.arange(40), budget="600B", chunk=1)


def test_another_name_of_a_registered_node_is_another_structure():
    weight = numbers(WIDTH)

    def f(carry, x):
        return Registered(carry.h * weight, carry.c, carry.name + "s"), None

    with pytest.raises(ebb.Error, match="init changes its structure"):
        ebb.scan(f, Registered(numbers(WIDTH), numbers(WIDTH)), torch.arange(40), budget="600B", chunk=1)


def test_a_number_in_a_dataclass_is_refused():
    with pytest.raises(ebb.Error, match="init holds a float"):
        ebb.scan(lambda h, x: (h, None), Plain(torch.zeros(2), 0.5), torch.zeros(3, 2))


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_verify_sees_their_gradients(kind):
    cell = torch.nn.LSTMCell(WIDTH, 4)

    def f(carry, x):
        h, c = cell(x, (carry.h, carry.c))
        return kind(h, c), kind(h, c * 2)

    found = ebb.verify(f, kind(numbers(BATCH, 4), numbers(BATCH, 4)), numbers(T, BATCH, WIDTH), budget="2KiB")
    assert found and {"init 0", "init 1", "xs 0"} <= {one.name for one in found.gradients}


def test_a_dataclass_that_f_keeps_outside():
    """As an attribute that it binds anew."""
    cell = torch.nn.LSTMCell(WIDTH, 4)
    xs = numbers(T, BATCH, WIDTH)

    class Net(torch.nn.Module):
        state = None

        def __call__(self, none, x):
            at = self.state if self.state is not None else Plain(torch.zeros(BATCH, 4), torch.zeros(BATCH, 4))
            h, c = cell(x, (at.h, at.c))
            self.state = Plain(h, c)
            return none, h

    def run(scan, **options):
        net = Net()
        ys = scan(net, (), xs, **options)[1]
        return ys, net.state.c.detach(), *gradients(weighted(ys, net.state.c), [xs, *cell.parameters()])

    same(run(ebb.scan, budget="3KiB", chunk=1), run(loop))
    assert ebb.last_report().strategy != "store_all"
