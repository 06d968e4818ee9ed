"""diffrax's side of `beside_diffrax.py`, run by a Python that has jax and diffrax and need not have PyTorch. Prints seconds as JSON.

Compiled dopri5 with the tolerances of ours, and diffrax's default gradient (RecursiveCheckpointAdjoint), which is exact.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import diffrax
import jax
import jax.numpy as jnp


def dense(key: Any, sizes: list[int]) -> Any:
    keys = jax.random.split(key, len(sizes))
    bound = [size**-0.5 for size in sizes]
    return [
        (jax.random.uniform(k, (a, b), minval=-s, maxval=s), jnp.zeros(b))
        for k, a, b, s in zip(keys, sizes[:-1], sizes[1:], bound, strict=False)
    ]


def vectors(t: Any, y: Any, weights: Any) -> Any:
    *inner, (last, bias) = weights
    for w, b in inner:
        y = jnp.tanh(y @ w + b)
    return y @ last + bias


def kernels(key: Any, channels: int) -> Any:
    scale = (9 * channels) ** -0.5
    return [jax.random.uniform(k, (channels, channels, 3, 3), minval=-scale, maxval=scale) for k in jax.random.split(key, 2)]


def maps(t: Any, y: Any, weights: Any) -> Any:
    for kernel in weights:
        groups = y.reshape(y.shape[0], 8, -1)
        mean, var = groups.mean(-1, keepdims=True), groups.var(-1, keepdims=True)
        y = jax.nn.relu(((groups - mean) / jnp.sqrt(var + 1e-5)).reshape(y.shape))
        y = jax.lax.conv_general_dilated(y, kernel, (1, 1), "SAME")
    return y


def solved(field: Callable[..., Any], tolerance: float) -> Callable[..., Any]:
    def end(weights: Any, y0: Any) -> Any:
        control = diffrax.PIDController(rtol=tolerance, atol=tolerance)
        return diffrax.diffeqsolve(diffrax.ODETerm(field), diffrax.Dopri5(), 0.0, 1.0, None, y0, weights, stepsize_controller=control).ys[0]

    return end


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Seconds of the first call, which compiles, and the median of those after it."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    first, times = time.perf_counter() - start, []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return first, statistics.median(times)


def main() -> None:
    rows = {}
    for problem in json.loads(sys.argv[1]):
        key, shape = jax.random.PRNGKey(0), tuple(problem["shape"])
        field, weights = (vectors, dense(key, problem["sizes"])) if problem["kind"] == "vectors" else (maps, kernels(key, shape[1]))
        y0 = jax.random.normal(key, shape)
        end = solved(field, problem["tolerance"])
        forward, backward = jax.jit(end), jax.jit(jax.grad(lambda w, y, end=end: (end(w, y) ** 2).mean()))
        of = {}
        for name, call in (("forward", forward), ("forward and backward", backward)):
            first, later = timed(lambda call=call, w=weights, y=y0: call(w, y), problem["repeats"])
            of |= {name: later, f"{name}, first call": first}
            print(f"{problem['name']}, {name}: first call {first:.1f} s, then {later:.4f} s", file=sys.stderr, flush=True)
        rows[problem["name"]] = of
    print(json.dumps({"rows": rows, "jax": version("jax"), "diffrax": version("diffrax")}))


if __name__ == "__main__":
    main()
