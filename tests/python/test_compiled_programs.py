# SPDX-License-Identifier: Apache-2.0
"""`ebb.compiled` on random functions of three matrices: in every budget the bits of torch's own partition, and gradients nearby in 8 bits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from compiled_cases import Stock, by_operation  # noqa: E402

import ebb  # noqa: E402

ROWS, WIDTH = 256, 64

OF_ONE: dict[str, Callable[[Any], Any]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": F.elu,
    "leaky_relu": lambda h: F.leaky_relu(h, 0.2),
    "hardtanh": F.hardtanh,
    "softplus": F.softplus,
    "square": torch.square,
    "layer_norm": lambda h: F.layer_norm(h, (WIDTH,)),
    "rms_norm": lambda h: h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-5),
    "unit": lambda h: h / (h.norm(dim=-1, keepdim=True) + 0.1),
    "deviation": lambda h: h / (h.std(0, keepdim=True) + 0.1),
    "softmax": lambda h: h.softmax(-1),
    "log_softmax": lambda h: h.log_softmax(-1),
    "exp": lambda h: h.clamp(-3, 3).exp(),
    "log": lambda h: (h.square() + 0.1).log(),
    "sqrt": lambda h: (h.square() + 0.1).sqrt(),
    "power": lambda h: (h.abs() + 0.5) ** 1.5,
    "abs": torch.abs,
    "sign": lambda h: h * h.detach().sign(),
    "round": lambda h: h + h.detach().round(),
    "choice": lambda h: torch.where(h > 0.3, h * 2, h * 0.1),
    "cumsum": lambda h: h.cumsum(-1) / 8,
    "largest": lambda h: h - h.amax(-1, keepdim=True),
    "sort": lambda h: h.sort(-1)[0],
    "pool": lambda h: F.max_pool1d(h.unsqueeze(1), 2).squeeze(1).repeat_interleave(2, -1),
}
OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": lambda a, b: a * b / 2,
    "maximum": torch.maximum,
    "quotient": lambda a, b: a / (b.square() + 0.5),
    "gate": lambda a, b: a * b.sigmoid(),
    "mask": lambda a, b: a.masked_fill(b > 1, 0.0),
    "step": lambda a, b: a * (b > 0).float(),
}


def program(seed: int) -> Callable[..., Any]:
    draw = random.Random(seed)
    plan: list[tuple[str, int, int]] = []
    for k in range(draw.randint(3, 9)):
        names = draw.choice([["product"], list(OF_ONE), list(OF_ONE), list(OF_TWO)])
        plan.append((draw.choice(names), draw.randrange(k + 1), draw.randrange(k + 1)))

    def run(x: Any, *weights: Any) -> Any:
        made = [x]
        for name, one, two in plan:
            if name == "product":
                made.append(made[one] @ weights[two % 3])
            elif name in OF_ONE:
                made.append(OF_ONE[name](made[one]))
            else:
                made.append(OF_TWO[name](made[one], made[two]))
        return (made[-1] @ weights[0]).square().mean() + made[-1].square().mean() + made[len(made) // 2].mean()

    return run


def gradients(seed: int, backend: Any) -> list[Any]:
    torch._dynamo.reset()
    torch.manual_seed(seed)
    x = torch.randn(ROWS, WIDTH)
    weights = [(torch.randn(WIDTH, WIDTH) / 8).requires_grad_() for _ in range(3)]
    loss = torch.compile(program(seed), backend=backend)(x, *weights)
    return [one for one in torch.autograd.grad(loss, weights, allow_unused=True) if one is not None]


@pytest.fixture(autouse=True)
def _by_operation(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield from by_operation(monkeypatch)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("seed", range(60))
def test_random_functions(seed: int) -> None:
    wanted = gradients(seed, Stock())
    for budget in (None, "60%"):
        assert all(map(torch.equal, gradients(seed, ebb.compiled(budget=budget)), wanted))
    for found, exact in zip(gradients(seed, ebb.compiled(keep="int8")), wanted, strict=True):
        assert torch.isfinite(found).all()
        assert float((found - exact).norm()) <= 0.01 * float(exact.norm()) + 1e-7
