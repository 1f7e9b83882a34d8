# SPDX-License-Identifier: Apache-2.0
"""`ebb.compiled(keep="int8")`: codes, what may be rounded, and gradients, in graphs that run operation by operation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from compiled_cases import MODELS, by_operation, gradients, residual  # noqa: E402
from torch import fx, nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import ebb  # noqa: E402
from ebb._compiled.codes import BITS, EIGHT_BITS, Code, _adder, code_of  # noqa: E402


@pytest.fixture(autouse=True)
def _by_operation(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield from by_operation(monkeypatch)


def there_and_back(code: Code, x: Any) -> tuple[Any, list[Any]]:
    """What is read of a tensor that is kept in a code, and what is kept."""
    graph, mode = fx.Graph(), FakeTensorMode()
    node = graph.placeholder("x")
    node.meta["val"] = mode.from_tensor(x)
    add = _adder(graph, mode)
    kept = code.write(add, node)
    graph.output((code.read(add, kept, node.meta["val"]), *kept))
    found, *kept = fx.GraphModule(nn.Module(), graph)(x)
    return found, kept


@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (6, 33), (2, 5, 9), (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_eight_bits_are_off_by_half_a_step_at_most(shape: tuple[int, ...], dtype: Any) -> None:
    torch.manual_seed(0)
    x = (3 * torch.randn(shape, dtype=torch.float64) + 1).to(dtype)
    found, kept = there_and_back(EIGHT_BITS, x)
    dims = [0, *range(2, len(shape))] if len(shape) > 3 else [-1]
    step = (x.double().amax(dims, True) - x.double().amin(dims, True)) / 255
    own = torch.finfo(dtype).eps * x.double().abs()
    assert found.dtype == dtype
    assert found.shape == x.shape
    assert ((found.double() - x.double()).abs() <= 0.5001 * step + 2 * own).all()
    assert kept[0].dtype == torch.uint8
    assert kept[0].shape == x.shape
    assert len(kept[0].unique()) > 50


def test_a_channel_of_one_number_is_exact() -> None:
    x = torch.full((2, 3, 4, 4), 7.25)
    x[:, 1] = 0
    assert torch.equal(there_and_back(EIGHT_BITS, x)[0], x)


@pytest.mark.parametrize("shape", [(8,), (16, 3), (3, 8, 5), (5, 3, 24), (24, 8, 8)])
def test_bits_are_exact(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape) > 0
    found, kept = there_and_back(BITS, x)
    assert torch.equal(found, x)
    assert sum(one.numel() for one in kept) * 8 == x.numel()


def test_what_has_no_code() -> None:
    assert code_of(torch.ones(3, 7) > 0) is None  # no dimension of eight parts
    assert code_of(torch.ones(8, 3).int()) is None
    assert code_of(torch.ones(64)) is None


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_near_and_outputs_equal(name: str) -> None:
    torch.manual_seed(1)
    model, x = MODELS[name]()
    exact = ebb.compiled(options={"fallback_random": True})
    rounded = ebb.compiled(keep="int8", options={"fallback_random": True})
    wanted, found = gradients(model, x, exact), gradients(model, x, rounded)
    assert torch.equal(found[0], wanted[0])
    parameters = list(model.parameters())
    errors = [
        float((one - two).norm() / two.norm())
        for one, two in zip(found[1 : len(parameters) + 1], wanted[1 : len(parameters) + 1], strict=True)
        if two.norm() > 1e-6
    ]
    assert max(errors) < 0.06
    assert 1e-5 < sum(errors) / len(errors) < 0.02
    (one,), (two,) = exact.reports, rounded.reports
    assert two.kept < (0.9 if name in ("language", "dropout") else 0.5) * one.kept
    assert two.stock_peak == one.stock_peak


def test_signs_are_exact() -> None:
    """Numbers near 0 would become 0, or change their sign."""
    torch.manual_seed(0)
    weight, factor = torch.randn(64, 64), torch.randn(64)
    x = torch.randn(512, 64, requires_grad=True)
    backend = ebb.compiled(keep="int8")

    def run(x: Any) -> Any:
        hidden = x @ weight
        return ((hidden.relu() * factor) @ weight).square().sum(), hidden.square().sum()

    found = []
    for work in (run, torch.compile(run, backend=backend)):
        loss, _ = work(x)
        (gradient,) = torch.autograd.grad(loss, x)
        found.append(gradient)
    assert float((found[1] - found[0]).norm() / found[0].norm()) < 1e-2
    (report,) = backend.reports
    assert report.kept < 0.5 * report.stock_kept


def unbearable() -> dict[str, Callable[[Any], Any]]:
    def attention(h: Any) -> Any:
        parts = [one.unflatten(-1, (4, -1)).transpose(-2, -3) for one in h.unflatten(0, (8, -1)).chunk(3, -1)]
        return nn.functional.scaled_dot_product_attention(*parts)

    return {
        "log": lambda h: (h.square() + 1e-3).log(),
        "quotient": lambda h: 1 / (h.square() + 1e-2),
        "softmax": lambda h: h.softmax(-1).square(),
        "sign": lambda h: h * h.detach().sign(),
        "root": lambda h: (h.square() + 1e-3).sqrt(),
        "attention": attention,
    }


@pytest.mark.parametrize("name", unbearable())
def test_what_does_not_bear_rounding_is_kept_as_it_is(name: str) -> None:
    """Gradients have the bits of those of an exact backend."""
    torch.manual_seed(0)
    act = unbearable()[name]
    weight = torch.randn(48, 48, requires_grad=True)
    x = torch.randn(512, 48)
    found = []
    for keep in ("exact", "int8"):
        torch._dynamo.reset()
        run = torch.compile(lambda x: act(x @ weight).sum(), backend=ebb.compiled(keep=keep))
        found += torch.autograd.grad(run(x), weight)
    assert torch.equal(found[0], found[1])


def steep() -> dict[str, Callable[[Any, Any, Any], Any]]:
    """Where a rounded number could decide, or one row hold numbers of very different sizes. Of x and two matrices."""
    torch.manual_seed(7)
    hidden = torch.randn(512, 64) > 1.5
    shift = torch.where(hidden, float("-inf"), 0.0)

    def mask_through_a_view(x: Any, w: Any, v: Any) -> Any:
        mask = (x @ w > 0).unsqueeze(-1)
        return (x @ v).unsqueeze(-1).masked_fill(mask, 0.0).squeeze(-1) * (x @ w).sigmoid()

    def filled(value: float) -> Callable[[Any, Any, Any], Any]:
        def run(x: Any, w: Any, v: Any) -> Any:
            h = (x @ w).masked_fill(hidden, value)
            return (h.sigmoid() * h.relu() + h.tanh()) @ v

        return run

    def sums(x: Any, w: Any, v: Any) -> Any:
        h = x @ w
        return h / (h.square().sum(-1, keepdim=True) + 1e-3)

    return {
        "mask through a view": mask_through_a_view,
        "step as a factor": lambda x, w, v: ((x @ w > 0).float() * (x @ w) * 20).tanh() @ v,
        "step": lambda x, w, v: (x @ w > 0).float() * (x @ v) * (x @ w).sigmoid(),
        "choice": lambda x, w, v: torch.where(x @ w > 0, 1.0, 50.0) * (x @ v),
        "whole numbers": lambda x, w, v: (3 * (x @ w)).to(torch.int32) * (x @ v),
        "minus infinity": filled(float("-inf")),
        "a large number": filled(-1e9),
        "added infinity": lambda x, w, v: (x @ w + shift).sigmoid() @ v + (x @ w + shift).tanh(),
        "angle": lambda x, w, v: torch.atan2(x @ w, x @ v),
        "quotient of a sum": sums,
        "root of a sum": lambda x, w, v: (x @ w).unflatten(-1, (4, 16)).sum(-1).abs().sqrt(),
        "logarithm of a sum": lambda x, w, v: (x @ w).unflatten(-1, (4, 16)).sum(-1).square().add(1e-4).log(),
    }


@pytest.mark.parametrize("name", steep())
def test_steep_functions_have_near_gradients(name: str) -> None:
    run = steep()[name]
    torch.manual_seed(0)
    x, w, v = (
        torch.randn(512, 64),
        (torch.randn(64, 64) / 8).requires_grad_(),
        (torch.randn(64, 64) / 8).requires_grad_(),
    )
    found = []
    for work in (run, torch.compile(run, backend=ebb.compiled(keep="int8"))):
        gradients = torch.autograd.grad(work(x, w, v).square().sum(), (w, v), allow_unused=True)
        found.append([one for one in gradients if one is not None])
    for one, two in zip(*found, strict=True):
        assert torch.isfinite(two).all()
        assert float((one - two).norm() / one.norm()) < 0.02


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 64])
def test_narrow_rows_are_told_as_they_are_kept(width: int) -> None:
    """A range has two numbers of its own: rows so short are not worth it."""
    weight = torch.randn(32, width, requires_grad=True)
    x, kept = torch.randn(4096, 32), 0
    backend = ebb.compiled(keep="int8")
    run = torch.compile(lambda x: (x @ weight).tanh() * (x @ weight), backend=backend)

    def pack(tensor: Any) -> Any:
        nonlocal kept
        kept += tensor.nbytes if tensor.shape[0] == 4096 and tensor.shape != x.shape else 0
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(x)
    (report,) = backend.reports
    assert report.kept == kept
    assert report.kept <= report.stock_kept


def test_a_budget_beside_eight_bits() -> None:
    model, x = residual(5)
    free, tight = ebb.compiled(keep="int8"), ebb.compiled(keep="int8", budget="50%")
    for backend in (free, tight):
        gradients(model, x, backend)
    (one,), (two,) = free.reports, tight.reports
    assert two.peak <= 0.5 * two.stock_peak
    assert one.again == ()


def test_only_two_ways_to_keep() -> None:
    with pytest.raises(ebb.Error, match="compiled: keep is 'half'; it is 'exact' or 'int8'"):
        ebb.compiled(keep="half")


def test_tensors_change_their_size() -> None:
    """A mask whose sizes are not known is kept as it is."""
    model, x = residual(2)
    wanted = copy.deepcopy(model)
    run = torch.compile(model, backend=ebb.compiled(keep="int8"), dynamic=True)
    for batch in (4, 6, 3):
        own = torch.randn(batch, *x.shape[1:])
        for one, work in ((model, run), (wanted, wanted)):
            one.zero_grad()
            work(own).square().mean().backward()
        for one, two in zip(model.parameters(), wanted.parameters(), strict=True):
            assert float((one.grad - two.grad).norm()) < 0.06 * float(two.grad.norm()) + 1e-4
