"""torch.compile of fields and of whole fixed-step blocks. In processes of their own: the shape checks of the suite cannot be traced."""

import subprocess
import sys

import pytest

# The front half of inductor. Not "aot_eager": without decompositions it hands PyTorch's group_norm backward, which reads memory as if it
# were contiguous, maps that are not (torch 2.13).
BACKEND = "aot_eager_decomp_partition"

PROGRAM = """
import sys, warnings
import torch
from continua import ContinuaWarning, create_model
from continua.models import frozen, pinned

warnings.simplefilter("ignore", ContinuaWarning)
backend, names = sys.argv[1], sys.argv[2:]
for name in names:
    torch.manual_seed(0)
    net = create_model(name, channels=(4,), solver=dict(method="euler", steps=1, gradient="direct"))
    twin = pinned(net)
    images = torch.rand(2, 3, 10, 10)
    h = net.stem(images).detach()
    weights = torch.randn_like(h)

    def check(ours, theirs, *given):
        torch._dynamo.reset()
        compiled = torch.compile(theirs, backend=backend, fullgraph=True)
        one, other = ours(*given), compiled(*given)
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
        expected = torch.autograd.grad((one * weights).sum(), list(ours.parameters()))
        found = torch.autograd.grad((other * weights).sum(), list(theirs.parameters()))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
        print(name, type(ours).__name__)

    check(net.blocks[0].field, twin.blocks[0].field, torch.tensor(0.5), h)
    check(net.blocks[0], twin.blocks[0], h)
    torch._dynamo.reset()
    with torch.no_grad():
        whole = torch.compile(frozen(net), backend=backend, fullgraph=True)(images)
        torch.testing.assert_close(whole, net(images), rtol=1e-4, atol=1e-5)
    print(name, "frozen")
"""

ADAPTIVE = """
import torch
from continua.blocks import ConvField, ODEBlock
from continua.filters import Pixel

torch.manual_seed(0)
field = ConvField(4, Pixel)
h = torch.randn(2, 4, 6, 6)
eager, calls = ODEBlock(field, 0.5), []

def backend(graph, inputs):
    def run(*args):
        calls.append(1)
        return graph(*args)
    return run

compiled = ODEBlock(torch.compile(field, backend=backend, fullgraph=True), 0.5)
with torch.no_grad():
    torch.testing.assert_close(compiled(h), eager(h), rtol=1e-4, atol=1e-5)
assert compiled.stats.nfe == eager.stats.nfe == len(calls), (compiled.stats.nfe, eager.stats.nfe, len(calls))
try:
    torch.compile(eager, backend="eager", fullgraph=True)(h)
except Exception as error:
    assert "chooses its steps from the data" in str(error), str(error)
    print("refused")
"""


def run(program: str, *words: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_field_block_and_frozen_network_compile_to_one_graph():
    assert run(PROGRAM, BACKEND, "dcn_ode") == ["dcn_ode ConvField", "dcn_ode ODEBlock", "dcn_ode frozen"]


def test_a_compiled_field_serves_an_adaptive_solver_at_every_evaluation():
    assert run(ADAPTIVE) == ["refused"]


@pytest.mark.slow
def test_every_kind_of_filter_compiles_to_one_graph():
    names = ["odenet", "dcn_full", "dcn_sigma_ji", "dcn_sigma_t", "dcn_sigma_alpha_t"]
    assert len(run(PROGRAM, BACKEND, *names)) == 3 * len(names)


@pytest.mark.slow
@pytest.mark.timeout(600)  # on a new machine, with the probe before it
@pytest.mark.needs("inductor")
def test_the_inductor_backend_gives_the_same_numbers():
    assert len(run(PROGRAM, "inductor", "dcn_ode")) == 3
