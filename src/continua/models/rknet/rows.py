"""Every row of the tables 1–3 of the RKNet paper under its own name, and `erknet` and `irknet` for all others."""

from functools import partial
from typing import Any

from continua.models.registry import register_model, register_spelling
from continua.models.rknet.config import ERKConfig, IRKConfig
from continua.models.rknet.names import spelled
from continua.models.rknet.network import RKNet

TINY = dict(growth=8)
IMAGENET: dict[str, Any] = dict(stem="imagenet", multiscale=False, bottleneck=True, growth=32, num_classes=1000)
AB: dict[str, Any] = dict(attention=True, bottleneck=True)
rknet_model = partial(register_model, paper="RKNet", tiny=TINY)
imagenet_model = partial(register_model, paper="RKNet", tiny=dict(growth=4, m=(2, 2, 2, 2), num_classes=10), image_size=224)

register_spelling(spelled)


@rknet_model(config=ERKConfig, row="ERKNet-7×1_7×1_7×1", parameters=990_838, printed="0.99M", tiny=TINY | {"stages": "2x2_1x1"})
def erknet(config: ERKConfig) -> RKNet:
    """Any explicit network."""
    return RKNet(config)


@rknet_model(config=IRKConfig, row="IRKNet-4×1_4×1_4×1", parameters=569_638, printed="0.57M", tiny=TINY | {"stages": "2x2_2x1"})
def irknet(config: IRKConfig) -> RKNet:
    """Any implicit network."""
    return RKNet(config)


@rknet_model(config=ERKConfig(stages="6x1_6x1_6x1"), row="table 1, ERKNet-6×1_6×1_6×1", parameters=744_382, printed="0.74M")
def erknet_k36_6x1_6x1_6x1(config: ERKConfig) -> RKNet:
    """18 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=ERKConfig(stages="7x1_6x1_6x1"), row="table 1, ERKNet-7×1_6×1_6×1", parameters=826_534, printed="0.83M")
def erknet_k36_7x1_6x1_6x1(config: ERKConfig) -> RKNet:
    """19 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=ERKConfig(stages="7x1_7x1_6x1"), row="table 1, ERKNet-7×1_7×1_6×1", parameters=908_686, printed="0.91M")
def erknet_k36_7x1_7x1_6x1(config: ERKConfig) -> RKNet:
    """20 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=ERKConfig(stages="7x1_7x1_7x1"), row="table 1, ERKNet-7×1_7×1_7×1", parameters=990_838, printed="0.99M")
def erknet_k36_7x1_7x1_7x1(config: ERKConfig) -> RKNet:
    """21 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=IRKConfig(stages="3x1_3x1_3x1"), row="table 1, IRKNet-3×1_3×1_3×1", parameters=322_534, printed="0.32M")
def irknet_k36_3x1_3x1_3x1(config: IRKConfig) -> RKNet:
    """9 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=IRKConfig(stages="4x1_3x1_3x1"), row="table 1, IRKNet-4×1_3×1_3×1", parameters=404_902, printed="0.40M")
def irknet_k36_4x1_3x1_3x1(config: IRKConfig) -> RKNet:
    """10 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=IRKConfig(stages="4x1_4x1_3x1"), row="table 1, IRKNet-4×1_4×1_3×1", parameters=487_270, printed="0.49M")
def irknet_k36_4x1_4x1_3x1(config: IRKConfig) -> RKNet:
    """11 stages, k = 36."""
    return RKNet(config)


@rknet_model(config=IRKConfig(stages="4x1_4x1_4x1"), row="table 1, IRKNet-4×1_4×1_4×1", parameters=569_638, printed="0.57M")
def irknet_k36_4x1_4x1_4x1(config: IRKConfig) -> RKNet:
    """12 stages, k = 36."""
    return RKNet(config)


@rknet_model(
    config=IRKConfig(stages="5x1_5x1_5x1", growth=150, **AB),
    row="table 2, IRKNet-5×1_5×1_5×1-AB, k = 150",
    parameters=4_866_010,
    printed="4.87M",
)
def irknet_k150_5x1_5x1_5x1_ab(config: IRKConfig) -> RKNet:
    """Attentional transitions and bottlenecks, k = 150."""
    return RKNet(config)


@rknet_model(
    config=IRKConfig(stages="5x1_5x1_5x1", growth=180, **AB),
    row="table 2, IRKNet-5×1_5×1_5×1-AB, k = 180",
    parameters=6_994_810,
    printed="6.99M",
)
def irknet_k180_5x1_5x1_5x1_ab(config: IRKConfig) -> RKNet:
    """Attentional transitions and bottlenecks, k = 180."""
    return RKNet(config)


@imagenet_model(
    config=ERKConfig(stages="3x1_3x1_3x1_1x1", m=(2, 4, 8, 16), **IMAGENET),
    row="table 3, ERKNet-3×1_3×1_3×1_1×1-B, m₃ = 16",
    parameters=6_947_048,
    printed="6.95M",
)
def erknet_imagenet_3x1_3x1_3x1_1x1_b(config: ERKConfig) -> RKNet:
    """For ImageNet, with bottlenecks; the last period has m = 16."""
    return RKNet(config)


@imagenet_model(
    config=ERKConfig(stages="3x1_3x1_4x1_2x1", m=(2, 4, 8, 20), **IMAGENET),
    row="table 3, ERKNet-3×1_3×1_4×1_2×1-B, m₃ = 20",
    parameters=14_485_992,
    printed="14.49M",
)
def erknet_imagenet_3x1_3x1_4x1_2x1_b(config: ERKConfig) -> RKNet:
    """For ImageNet, with bottlenecks; the last period has m = 20."""
    return RKNet(config)


@imagenet_model(
    config=ERKConfig(stages="3x1_3x1_6x1_2x1", m=(2, 4, 8, 28), **IMAGENET),
    row="table 3, ERKNet-3×1_3×1_6×1_2×1-B, m₃ = 28",
    parameters=25_513_960,
    printed="25.51M",
)
def erknet_imagenet_3x1_3x1_6x1_2x1_b(config: ERKConfig) -> RKNet:
    """For ImageNet, with bottlenecks; the last period has m = 28."""
    return RKNet(config)
