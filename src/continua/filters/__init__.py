"""SPACE and WEIGHT: what a convolution's kernel is, F(x, y; t), and how it is applied to a feature map.

A *filter* says what the kernel is: `state()` are its tensors (pixels; α and s = log2 σ), `kernel(state, t)` samples it on the pixel grid:

    Pixel(in, out, size=3)                      k×k numbers
    NJet(in, out, order=2, sharing="layer")     Σ α_ij G_ij(x, y; σ): one σ per "layer", per output "channel" or per "pair" (σ_ji)
    ScheduledNJet(in, out, scale="linear")      σ(t), with alpha="linear" also α(t); depends on t
    LateralGaussians(amplitudes, sigmas)        Σ_k a_k G(x, y; σ_k) from each channel to each: how a neural field is connected
    Evolved(Pixel(in, out), RDA(out))           any filter whose state follows a differential equation of its own; depends on t

A *convolution* applies one. In a network without depth it is an ordinary module, `FilterConv2d(NJet(32, 32))(x)`. With
`time_channel=True` the filter has one input channel more than the map: channel 0 reads the constant map t, as in the papers, computed as
t · (the response of its kernel to ones), which is the same to rounding, borders included.

A field, which evaluates a convolution many times in one solve, realises it once:

    conv = FilterConv2d(NJet(1 + 32, 32), time_channel=True)
    ready = conv.realise(h.shape, h.dtype, h.device)       # inside autocast: in autocast's dtype
    y = ready(h, t)                                        # t: number, 0-d tensor, or (batch,)
    y = ready.apply(h, t, *ready.tensors)                  # the same as a pure function of its tensors

`ready.tensors` are differentiable functions of the parameters (for a static filter the realised weights and the response to ones; for a
filter that depends on t the state itself). A solver with its own backward pass detaches them, accumulates their gradients over all its
evaluations and calls `torch.autograd.backward(ready.tensors, gradients)` once: that is when the sampling of the Gaussians is
differentiated. `ready.parts(h, t, *tensors)` gives (y, m) with ready(h, t) = y + t·m for a field that adds the time term elsewhere (fused
with its norm, say); m is (1 or batch, out, h, w) or None. `ready.route` names the route taken.
"""

from continua.filters.algebra import Tuning
from continua.filters.basis import jet_orders
from continua.filters.conv import FilterConv2d, RealisedConv
from continua.filters.evolution import (
    ConvEvolution,
    Evolution,
    Grid,
    HyperNetwork,
    Integrated,
    LinearEvolution,
    ScaleDiffusion,
    Static,
    WeightPath,
)
from continua.filters.evolved import EVOLUTIONS, Evolved, evolve, make_evolution
from continua.filters.filter import Filter, Pixel
from continua.filters.history import Remembering
from continua.filters.kernel import JetKernel, Kernel, PixelKernel
from continua.filters.lateral import LateralGaussians, mexican_hat
from continua.filters.njet import JetFit, NJet, fit_pixel_kernel
from continua.filters.rda import RDA
from continua.filters.routes import Preceding, autocast_on, fast_on_cpu, why_no_library, without_autocast
from continua.filters.schedule import ScheduledNJet

__all__ = [
    "EVOLUTIONS",
    "RDA",
    "ConvEvolution",
    "Evolution",
    "Evolved",
    "Filter",
    "FilterConv2d",
    "Grid",
    "HyperNetwork",
    "Integrated",
    "JetFit",
    "JetKernel",
    "Kernel",
    "LateralGaussians",
    "LinearEvolution",
    "NJet",
    "Pixel",
    "PixelKernel",
    "Preceding",
    "RealisedConv",
    "Remembering",
    "ScaleDiffusion",
    "ScheduledNJet",
    "Static",
    "Tuning",
    "WeightPath",
    "autocast_on",
    "evolve",
    "fast_on_cpu",
    "fit_pixel_kernel",
    "jet_orders",
    "make_evolution",
    "mexican_hat",
    "why_no_library",
    "without_autocast",
]
