"""Tiny networks whose blocks may be absent, for what is to be tested with depth."""

from __future__ import annotations

from nets.deep import Encoder, bottleneck, looped, masked, mixer, plain, preactivation, residual, tuples
from zoo import ZOO, ZooNet, normal

DEEP: dict[str, ZooNet] = {
    net.name: net
    for net in (
        ZooNet("deep_residual", residual, normal()),
        ZooNet("deep_preactivation", preactivation, normal()),
        ZooNet("deep_plain", plain, normal()),
        ZooNet("deep_bottleneck", bottleneck, normal(3, 33, 33)),
        ZooNet("deep_encoder", Encoder, normal(4, 5)),  # dropped
        ZooNet("deep_loop", looped, normal(4, 5)),
        ZooNet("deep_masked", masked, normal(4, 5)),  # dropped
        ZooNet("deep_tuples", tuples, normal(4, 5)),  # dropped
        ZooNet("deep_mixer", mixer, normal(4, 5)),
    )
}
ALL_NETS = ZOO | DEEP
DROPPED = ("deep_encoder", "deep_masked", "deep_tuples")
