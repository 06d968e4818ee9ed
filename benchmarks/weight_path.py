"""What evolving weights cost: the weight path of `alexnet_anodev2_c1` beside one training step of the network.

The path is computed once per forward pass and differentiated once per backward pass, whatever the batch: here alone, forward and backward,
beside a whole step (forward, backward, SGD) on random images.
"""

import torch
from torch.nn import functional

import continua as ct
from _common import machine, medians, options, show


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--model", default="alexnet_anodev2_c1")
    parser.add_argument("--batch", type=int, default=256)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    net = ct.create_model(chosen.model)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.rand(chosen.batch, 3, 32, 32), torch.randint(10, (chosen.batch,))
    filters = [conv.filter for block in net.blocks for conv in block.field.convs]

    def step() -> None:
        optimiser.zero_grad()
        functional.cross_entropy(net(images), labels).backward()
        optimiser.step()

    def path() -> None:
        for evolved in filters:
            state = evolved.state()
            evolved.read_host(state)
            moving = [tensor for tensor in state.values() if tensor.requires_grad]
            torch.autograd.backward(moving, [torch.ones_like(tensor) for tensor in moving])

    found = medians({"training step": step, "weight path": path}, chosen.repeats)
    share = 100 * found["weight path"] / found["training step"]
    rows = [{"what": name, "seconds": seconds} for name, seconds in found.items()] + [{"what": "share of the step, %", "seconds": share}]
    show(f"{chosen.model}, batch {chosen.batch}", rows, machine(), chosen.json)


if __name__ == "__main__":
    main()
