# SPDX-License-Identifier: Apache-2.0
"""Spiking layers as a loop over time steps in PyTorch, whose autograd gives the gradients but for that of a spike."""

import math

import torch

# psi(x) with k and the k that ebb takes if none is given.
SURROGATES = {
    "fast_sigmoid": (lambda x, k: 1 / (1 + k * x.abs()) ** 2, 25),
    "superspike": (lambda x, k: k / (1 + x.abs()) ** 2, 1),
    "arctan": (lambda x, k: k / 2 / (1 + (math.pi * k * x / 2) ** 2), 2),
    "triangular": (lambda x, k: k * (1 - x.abs()).clamp(min=0), 0.3),
    "boxcar": (lambda x, k: (x.abs() <= k).to(x.dtype), 0.5),
    "multi_gaussian": (
        lambda x, k: 0.5 * (1.15 * normal(x, 0, k) - 0.15 * normal(x, k, 6 * k) - 0.15 * normal(x, -k, 6 * k)),
        0.5,
    ),
}


def normal(x, mean, sigma):
    return torch.exp(-0.5 * ((x - mean) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))


def unit_parameters(cell, synaptic):
    """Values that make units spike often."""
    if cell == "egru":
        return {"threshold": 0.1}
    if cell == "lif":
        return {"threshold": 0.5, "tau_mem": 6.0, **({"tau_syn": 3.0} if synaptic else {})}
    if cell == "alif":
        return {"threshold": 0.5, "tau_mem": 6.0, "tau_adp": 12.0, "beta": 0.6}
    return {"threshold": 0.5, "tau_mem": 6.0, "tau_adp": 12.0, "a": 0.2, "b": 0.3}


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(slope)
        return (x >= 0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


class Layer:
    """One layer; its state is the fields and what it gave last."""

    def __init__(self, options, parameters, layer, fields):
        self.o = options
        self.p = {name.rsplit("_l", 1)[0]: tensor for name, tensor in parameters.items() if name.endswith(f"_l{layer}")}
        own = "triangular" if options["cell"] == "egru" else "fast_sigmoid"
        self.psi, sharpness = SURROGATES[options.get("surrogate", own)]
        self.k = options.get("sharpness", sharpness)
        self.fields = fields
        self.given = fields[0] if options["cell"] == "egru" else torch.zeros_like(fields[0])

    def spike(self, membrane, level):
        x = membrane - level
        slope = self.psi(x.detach(), self.k)
        if "gradient_threshold" in self.o:
            slope = slope * (membrane.detach() >= self.o["gradient_threshold"])
        return Spike.apply(x, slope)

    def decay(self, name):
        return torch.exp(-1 / self.p[name])

    def step(self, x):
        self.given = getattr(self, self.o["cell"])(x)
        return self.given

    def sums(self, x):
        return x @ self.p["weight_ih"].T + self.p["bias_ih"] + self.given @ self.p["weight_hh"].T

    def kappa(self, alpha):
        return 1 - alpha if self.o.get("normalised", True) else 1

    def resetting(self, spikes):
        return spikes if self.o.get("attached_reset") else spikes.detach()

    def lif(self, x):
        current, alpha, threshold = self.sums(x), self.decay("tau_mem"), self.p["threshold"]
        if self.o.get("synaptic"):
            current = self.decay("tau_syn") * self.fields[1] + current
        u = alpha * self.fields[0] + self.kappa(alpha) * current
        spikes = self.spike(u, threshold)
        off = u - self.o.get("rest", 0) if self.o.get("hard_reset") else threshold
        v = u - self.resetting(spikes) * off
        self.fields = [v, current] if self.o.get("synaptic") else [v]
        return spikes

    def alif(self, x):
        (u, b), s, alpha, rho = self.fields, self.given, self.decay("tau_mem"), self.decay("tau_adp")
        current, reset = self.kappa(alpha) * self.sums(x), self.resetting(self.given)
        b = rho * b + (1 - rho) * s
        level = self.p["threshold"] + self.p["beta"] * b
        u = alpha * u * (1 - reset) + current if self.o.get("hard_reset") else alpha * u + current - level * reset
        self.fields = [u, b]
        return self.spike(u, level)

    def adlif(self, x):
        (u, w), s, alpha, beta = self.fields, self.given, self.decay("tau_mem"), self.decay("tau_adp")
        current, reset = self.sums(x), self.resetting(self.given)
        w = beta * w + self.p["a"] * u + self.p["b"] * s
        kept = u - reset * (u if self.o.get("hard_reset") else self.p["threshold"])
        u = alpha * kept + self.kappa(alpha) * (current - w)
        self.fields = [u, w]
        return self.spike(u, self.p["threshold"])

    def egru(self, x):
        y, c = self.fields
        above = x @ self.p["weight_ih"].T + self.p["bias_ih"]
        own = y @ self.p["weight_hh"].T + self.p["bias_hh"]
        (iu, ir, iz), (hu, hr, hz) = above.chunk(3, -1), own.chunk(3, -1)
        update, r = torch.sigmoid(iu + hu), torch.sigmoid(ir + hr)
        z = torch.tanh(iz + r * hz)
        c = update * z + (1 - update) * c - y
        y = c * self.spike(c, self.p["threshold"])
        self.fields = [y, c]
        return y


def reference(tensors, options):
    """What ebb's program gives, and the share of time steps of units that were spikes."""
    layers = options["layers"]
    leaves = {name: tensor.double().detach().requires_grad_() for name, tensor in tensors.items()}
    stack = [Layer(options, leaves, layer, list(leaves[f"state_l{layer}"].unbind(1))) for layer in range(layers)]
    weight, bias = leaves[f"weight_ih_l{layers}"], leaves[f"bias_ih_l{layers}"]
    is_leaky = options.get("readout") == "leaky"
    kappa = torch.exp(-1 / leaves[f"tau_mem_l{layers}"]) if is_leaky else 0
    outputs, given, output = [], [], 0
    for x in leaves["inputs"]:
        before = [layer.given for layer in stack]
        for i, layer in enumerate(stack):
            x = layer.step(x)
            given.append(x.detach())
            if options.get("pipelined"):
                x = before[i]
        output = kappa * output + (1 - kappa) * (x @ weight.T + bias)
        outputs.append(output)
    outputs = torch.stack(outputs)
    loss = (outputs * tensors["output_gradients"]).sum()
    for i, layer in enumerate(stack):
        loss = loss + (torch.stack(layer.fields, 1) * tensors[f"state_gradient_l{i}"]).sum()
    loss.backward()
    result = {"outputs": outputs.detach()}
    for i, layer in enumerate(stack):
        result[f"state_l{i}"] = torch.stack(layer.fields, 1).detach()
    for name, leaf in leaves.items():
        if not name.startswith(("output", "state_gradient")):
            result[f"{name}.gradient"] = leaf.grad
    return result, (torch.stack(given) != 0).double().mean().item()
