"""The ordinary residual block of ANODE and ANODEV2: ReLU after the addition (He et al. 2016a)."""

from torch import Tensor, nn

from continua.blocks.norm import Activation


class OrdinaryBlock(nn.Module):
    """The discrete block that a coupled one replaces: act(shortcut(z) + norm ∘ conv ∘ … (z)), ReLU after the addition.

    Where the shape changes the shortcut is a 1×1 convolution with BatchNorm.
    """

    def __init__(
        self, inputs: int, outputs: int, *, layers: int = 2, size: int = 3, stride: int = 1, bias: bool = False, activation: str = "relu"
    ) -> None:
        super().__init__()
        convs = [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=bias)]
        convs += [nn.Conv2d(outputs, outputs, size, 1, size // 2, bias=bias) for _ in range(layers - 1)]
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in convs)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.act = Activation(activation)

    def forward(self, h: Tensor) -> Tensor:
        change = h
        for index, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            change = norm(conv(change))
            if index + 1 < len(self.convs):
                change = self.act(change, overwrite=True)
        return self.act(self.shortcut(h) + change, overwrite=True)
