# SPDX-License-Identifier: Apache-2.0
"""Large products of a recurrent layer in float32: every way that matrices can lie in memory. On a CPU cuBLAS is played."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import gated_stand_in  # noqa: E402

from ebb import _core  # noqa: E402
from ebb.nn import _products  # noqa: E402

ON_GPU = torch.cuda.is_available() and bool(_core.gated_architectures())


@pytest.fixture
def device(monkeypatch):
    if ON_GPU:
        return torch.device("cuda")
    gated_stand_in.use(monkeypatch)
    return torch.device("cpu")


LYING = {
    "rows": lambda made, r, c: made(r, c),
    "columns": lambda made, r, c: made(c, r).t(),
    "gaps": lambda made, r, c: made(r, c + 3)[:, 1 : c + 1],
    "gaps between columns": lambda made, r, c: made(c, r + 3)[:, 1 : r + 1].t(),
    "every second": lambda made, r, c: made(r, 2 * c)[:, ::2],
    "one row again and again": lambda made, r, c: made(1, c).expand(r, c),
    "one column again and again": lambda made, r, c: made(r, 1).expand(r, c),
}


@pytest.mark.parametrize("number", ["float32", "tf32"])
@pytest.mark.parametrize("size", [(5, 7, 3), (1, 7, 3), (5, 1, 3), (5, 7, 1), (1, 1, 1)])
@pytest.mark.parametrize("how", LYING)
@pytest.mark.parametrize("other", LYING)
def test_products(how, other, size, number, device):
    torch.manual_seed(0)
    rows, columns, inner = size

    def made(*shape):
        return torch.randint(-4, 5, shape, device=device).float()  # exact in TF32 too

    a, b, bias = LYING[how](made, rows, inner), LYING[other](made, inner, columns), made(columns)
    exact = (a.double() @ b.double()).float()
    products = _products.products_of(number, device)
    assert isinstance(products, _products.FloatProducts)
    around = made(rows, columns + 2)
    out = around[:, 1 : columns + 1]
    before = around.clone()
    products.fill(out, a, b)
    assert torch.equal(out, exact)
    products.add(out, a, b)
    assert torch.equal(out, 2 * exact)
    products.biased(bias, a, b, out=out)
    assert torch.equal(out, exact + bias)
    assert torch.equal(around[:, 0], before[:, 0]) and torch.equal(around[:, -1], before[:, -1])
    assert torch.equal(products.biased(bias, a, b), exact + bias)
    assert torch.equal(products.biased(None, a, b), exact)
    total = made(rows, columns)
    wanted = total + 2 * exact
    products.add_up(total, a, b)
    products.add_rows(total, a, b)
    assert torch.equal(total, wanted)


def test_another_cublas_is_not_called(monkeypatch):
    gated_stand_in.use(monkeypatch)
    assert _products.why_not(torch.float32) is None
    monkeypatch.setattr(_products, "_CUBLAS", 12)  # where another one is loaded
    assert "cuBLAS" in _products.why_not(torch.float32)
    assert _products.why_not(torch.bfloat16) is None


@pytest.mark.skipif(not ON_GPU, reason="no GPU here")
@pytest.mark.parametrize("setting", ["highest", "high"])
def test_precision(setting):
    """That of the products, not torch's setting. It is torch's again afterwards."""
    a, b = torch.randn(64, 512, device="cuda"), torch.randn(512, 64, device="cuda")
    exact, before = a.double() @ b.double(), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        own = a @ b
        errors = {}
        for number in ("float32", "tf32"):
            found = _products.products_of(number, a.device).biased(None, a, b)
            errors[number] = float((found - exact).abs().max() / exact.abs().max())
        assert errors["float32"] < 1e-6 < 1e-5 < errors["tf32"] < 1e-2
        assert torch.equal(a @ b, own)
    finally:
        torch.set_float32_matmul_precision(before)
