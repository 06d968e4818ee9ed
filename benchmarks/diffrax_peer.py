"""diffrax on problems of `compat.py`, for its `--diffrax PYTHON`: runs in an environment of its own that has jax and diffrax.

Prints medians in milliseconds of compiled programs on one core: a solve by Dopri5, and the gradient of a loss through it with diffrax's
default, checkpointed gradient. The same sizes, times and tolerances; other random weights.
"""

import json
import os
import statistics
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import diffrax  # noqa: E402  # pyright: ignore[reportMissingImports]
import jax  # noqa: E402  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # noqa: E402  # pyright: ignore[reportMissingImports]


def layers(*sizes):
    keys = jax.random.split(jax.random.PRNGKey(0), len(sizes))
    return [(jax.random.normal(k, (a, b)) / a**0.5 / 2, jnp.zeros(b)) for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=False)]


def perceptron(activation, power=1):
    def rate(t, y, weights):
        y = y**power
        for index, (matrix, bias) in enumerate(weights):
            y = y @ matrix + bias
            y = activation(y) if index + 1 < len(weights) else y
        return y

    return rate


def conv_weights(channels=64):
    keys = jax.random.split(jax.random.PRNGKey(0), 2)
    return [jax.random.normal(k, (channels, channels + 1, 3, 3)) / (9 * channels) ** 0.5 / 2 for k in keys]


def norm(y):
    grouped = y.reshape(y.shape[0], 32, -1)
    centred = grouped - grouped.mean(-1, keepdims=True)
    return (centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)).reshape(y.shape)


def maps(t, y, weights):
    for kernel in weights:
        y = jax.nn.relu(norm(y))
        y = jnp.concatenate([jnp.full_like(y[:, :1], t), y], 1)
        y = jax.lax.conv(y, kernel, (1, 1), "SAME")
    return norm(y)


def normal(*shape):
    return jax.random.normal(jax.random.PRNGKey(1), shape)


PROBLEMS = {
    "spiral, 20 × 2, 10 times": (perceptron(jnp.tanh, 3), layers(2, 50, 2), normal(20, 2), jnp.linspace(0, 2, 10), 1e-5),
    "latent ODE, 1000 × 4, 100 times": (perceptron(jax.nn.elu), layers(4, 20, 20, 4), normal(1000, 4), jnp.linspace(0, 6, 100), 1e-5),
    "vectors, 64 × 64": (perceptron(jnp.tanh), layers(64, 128, 128, 64), normal(64, 64), jnp.linspace(0, 1, 2), 1e-5),
    "vectors, 64 × 256": (perceptron(jnp.tanh), layers(256, 128, 128, 256), normal(64, 256), jnp.linspace(0, 1, 2), 1e-5),
    "ODE-Net on digits, 64 × 64 × 6 × 6": (maps, conv_weights(), normal(64, 64, 6, 6), jnp.linspace(0, 1, 2), 1e-3),
}


def milliseconds(program, *arguments, repeats):
    jax.block_until_ready(program(*arguments))  # compiles
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main(repeats):
    result = {"forward": {}, "backward": {}, "about": {"diffrax": diffrax.__version__, "jax": jax.__version__}}
    for name, (rate, weights, y0, times, tolerance) in PROBLEMS.items():

        def states(weights, y0, rate=rate, times=times, tolerance=tolerance):
            control = diffrax.PIDController(rtol=tolerance, atol=tolerance)
            return diffrax.diffeqsolve(
                diffrax.ODETerm(rate),
                diffrax.Dopri5(),
                times[0],
                times[-1],
                dt0=None,
                y0=y0,
                args=weights,
                saveat=diffrax.SaveAt(ts=times),
                stepsize_controller=control,
                max_steps=256,
            ).ys

        def loss(weights, y0, states=states):
            return (states(weights, y0) ** 2).mean()

        result["forward"][name] = milliseconds(jax.jit(states), weights, y0, repeats=repeats)
        result["backward"][name] = milliseconds(jax.jit(jax.grad(loss)), weights, y0, repeats=repeats)
    print(json.dumps(result))


if __name__ == "__main__":
    main(int(sys.argv[1]))
