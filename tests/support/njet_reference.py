"""Kernels and convolutions written straight from the formulas in float64 NumPy, independent of the package."""

import math

import numpy as np
from numpy.polynomial.hermite import hermval


def derivative(order, sigma, radius):
    """σ^n (−1/(√2σ))^n H_n(x/(√2σ)) g(x), g renormalised to sum 1 on −radius … radius."""
    x = np.arange(-radius, radius + 1, dtype=np.float64)
    g = np.exp(-(x**2) / (2 * sigma**2))
    g /= g.sum()
    return sigma**order * (-1 / (math.sqrt(2) * sigma)) ** order * hermval(x / (math.sqrt(2) * sigma), [0] * order + [1]) * g


def pairs(order):
    return [(i, j) for i in range(order + 1) for j in range(order, -1, -1) if i + j <= order]


def njet(alpha, sigma, order, radius):
    """Dense weights (out, in, k, k) of Σ α_ij G_i(row) G_j(column)."""
    basis = np.stack([np.outer(derivative(i, sigma, radius), derivative(j, sigma, radius)) for i, j in pairs(order)])
    return np.einsum("fco,fyx->ocyx", alpha, basis)


def radius_of(sigma, factor=2.0):
    return math.ceil(factor * sigma + 0.5)


def correlate(x, weight, stride=1):
    """What a convolution layer computes, with zeros up to the kernel's half-width."""
    radius = weight.shape[-1] // 2
    height, width = x.shape[-2:]
    padded = np.pad(x, ((0, 0), (0, 0), (radius, radius), (radius, radius)))
    out = 0.0
    for dy in range(2 * radius + 1):
        for dx in range(2 * radius + 1):
            out = out + np.einsum("bchw,oc->bohw", padded[:, :, dy : dy + height, dx : dx + width], weight[:, :, dy, dx])
    return out[:, :, ::stride, ::stride]
