"""Tiny networks, one per construct the tracer claims to follow, and a few it must refuse to.

Every net is plain torch with at most a few thousand parameters, has no randomness in its forward, and runs in
train mode. The caller seeds; `ZooNet.build` does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nets.common import Concat, Residual, classifier, conv_bn, mlp, seq
from nets.conv import (
    ChannelCumsum,
    ChannelShuffle,
    ConvNeXtBlock,
    Lift,
    MultiOutput,
    PaddedShortcutBlock,
    Resampling,
    Siamese,
    SplitUnit,
    SqueezeExcite,
    UNet,
    WeightNormedConv,
    basic_block,
    bottleneck,
    inverted_residual,
    own_masks_block,
    preact_block,
    shuffle_unit,
)
from nets.positions import (
    Experts,
    FilledIn,
    FourierOperator,
    Graph,
    Pairs,
    Prototypes,
    Rounded,
    added,
    in_segments,
    put,
    scattered,
)
from nets.recurrent import (
    AttendedStates,
    EncoderDecoder,
    InChunks,
    Packed,
    Recurrent,
    Stateful,
    StatefulCell,
)
from nets.tokens import (
    GPT,
    BareParameters,
    Einsum,
    HardViewAttention,
    MatmulAttention,
    Places,
    Reduced,
    SwiGLU,
    TokenNet,
    TorchAttention,
    Transposed,
    ValueDimAttention,
    ViT,
    WrittenFlags,
    block,
    llama,
    nano_gpt,
)

Inputs = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class ZooNet:
    """One net and inputs for it.

    `free` and `pinned` name modules (or bare parameters) whose output units must end up free or pinned. They
    state what is worth stating, not everything: a module in neither set is not judged.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Inputs
    free: frozenset[str] = frozenset()
    pinned: frozenset[str] = frozenset()

    def build(self, seed: int = 0) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """A fresh model and its inputs, the same for the same seed. The global random state is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make(), self.inputs()


def normal(*shape: int) -> Inputs:
    return lambda: (torch.randn(2, *(shape or (3, 8, 8))),)


def tokens(n: int = 6, vocab: int = 11) -> Inputs:
    return lambda: (torch.randint(vocab, (2, n)),)


def _net(name: str, make: Callable[[], nn.Module], inputs: Inputs, free: str = "", pinned: str = "") -> ZooNet:
    return ZooNet(name, make, inputs, frozenset(free.split()), frozenset(pinned.split()))


def graph() -> tuple[Tensor, ...]:
    """Four nodes and six edges."""
    return torch.randn(4, 5), torch.tensor([[0, 1, 2, 3, 1, 2], [0, 0, 1, 2, 2, 3]])


CONVOLUTIONAL = (
    _net(
        "plain",
        lambda: classifier(8, conv_bn(3, 6), conv_bn(6, 8)),
        normal(),
        "body.0.conv body.1.conv",
        "head",
    ),
    _net(
        "plain_no_norm",
        lambda: classifier(8, nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.Sigmoid()),
        normal(),
        free="body.0 body.2",
        pinned="head",
    ),
    _net(
        "vgg",
        lambda: seq(
            a=conv_bn(3, 6),
            pool_a=nn.MaxPool2d(2),
            b=conv_bn(6, 8),
            pool_b=nn.MaxPool2d(2),
            flat=nn.Flatten(),
            fc=nn.Linear(8 * 2 * 2, 10),
            act=nn.ReLU(),
            head=nn.Linear(10, 5),
        ),
        normal(),
        free="a.conv b.conv fc",
        pinned="head",
    ),
    _net(
        "own_masks",
        lambda: classifier(6, seq(stem=conv_bn(3, 6, act=False), lift=Lift(6)), own_masks_block(6, 5)),
        normal(),
        free="body.0.stem.conv body.1.body.a.conv body.1.body.b.conv body.0.lift",
        pinned="head",
    ),
    _net(
        "resnet",
        lambda: classifier(8, conv_bn(3, 6), basic_block(6, 6), basic_block(6, 8, 2)),
        normal(),
        free="body.0.conv body.1.body.0.conv body.2.body.0.conv body.2.body.1.conv body.2.shortcut.conv",
        pinned="head",
    ),
    _net(
        "resnet_padded",
        lambda: classifier(10, conv_bn(3, 6), PaddedShortcutBlock(6, 10), basic_block(10, 10)),
        normal(),
        free="body.0.conv body.1.conv1.conv body.2.body.0.conv",
        pinned="head",
    ),
    _net(
        "preact",
        lambda: classifier(8, nn.Conv2d(3, 8, 3), preact_block(8), preact_block(8), nn.BatchNorm2d(8), nn.ReLU()),
        normal(),
        free="body.0 body.1.body.2 body.1.body.5 body.2.body.2",
        pinned="head",
    ),
    _net(
        "bottleneck",
        lambda: classifier(12, conv_bn(3, 8), bottleneck(8, 4, 8), bottleneck(8, 4, 12)),
        normal(),
        free="body.0.conv body.1.body.a.conv body.1.body.b.conv body.2.body.c.conv",
        pinned="head",
    ),
    _net(
        "densenet",
        lambda: classifier(14, conv_bn(3, 6), Concat(conv_bn(6, 4), keep=True), Concat(conv_bn(10, 4), keep=True)),
        normal(),
        free="body.0.conv body.1.branches.0.conv body.2.branches.0.conv",
        pinned="head",
    ),
    _net(
        "inception",
        lambda: classifier(
            12,
            conv_bn(3, 6),
            Concat(
                conv_bn(6, 4, 1),
                nn.Sequential(conv_bn(6, 3, 1), conv_bn(3, 6)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_bn(6, 2, 1)),
            ),
        ),
        normal(),
        free="body.0.conv body.1.branches.0.conv body.1.branches.1.0.conv body.1.branches.2.1.conv",
        pinned="head",
    ),
    _net(
        "inverted_residual",
        lambda: classifier(6, conv_bn(3, 6), inverted_residual(6, 12), inverted_residual(6, 10)),
        normal(),
        free="body.0.conv body.1.body.expand.conv body.1.body.dw.conv body.1.body.project.conv",
        pinned="head",
    ),
    _net(
        "squeeze_excite",
        lambda: classifier(6, conv_bn(3, 8), SqueezeExcite(8, 4), conv_bn(8, 6)),
        normal(),
        free="body.0.conv body.1.squeeze body.1.excite body.2.conv",
        pinned="head",
    ),
    _net(
        "shufflenet",
        lambda: classifier(8, conv_bn(3, 8), shuffle_unit(8, 8, 2), shuffle_unit(8, 8, 2)),
        normal(),
        pinned="head",
    ),
    _net(
        "chunk",
        lambda: classifier(6, conv_bn(3, 8), SplitUnit(8, 6), conv_bn(8, 6)),
        normal(),
        free="body.1.branch.a.conv body.2.conv",
        pinned="head",
    ),
    _net(
        "shufflenet_v2",
        lambda: classifier(8, conv_bn(3, 8), SplitUnit(8, 6), ChannelShuffle(2), SplitUnit(8, 6)),
        normal(),
        free="body.1.branch.a.conv body.3.branch.a.conv",
        pinned="head",
    ),
    _net("unet", UNet, normal(), free="down.conv mid.conv up fuse.conv", pinned="head"),
    _net(
        "decoder",
        lambda: seq(
            up1=nn.ConvTranspose2d(4, 8, 2, stride=2, bias=False),
            bn=nn.BatchNorm2d(8),
            act1=nn.ReLU(),
            up2=nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1),
            act2=nn.ReLU(),
            head=nn.Conv2d(6, 3, 3, padding=1),
        ),
        normal(4, 2, 2),
        free="up1 up2",
        pinned="head",
    ),
    _net(
        "depthwise_transposed",
        lambda: seq(stem=conv_bn(3, 8), up=nn.ConvTranspose2d(8, 8, 2, stride=2, groups=8), head=nn.Conv2d(8, 3, 1)),
        normal(3, 4, 4),
        free="stem.conv up",
        pinned="head",
    ),
    _net(
        "resnext",
        lambda: classifier(8, conv_bn(3, 8), bottleneck(8, 16, 8, groups=4)),
        normal(),
        free="body.0.conv body.1.body.c.conv",
        pinned="head",
    ),
    _net(
        "conv1d",
        lambda: seq(
            a=nn.Conv1d(3, 6, 3, padding=1),
            bn=nn.BatchNorm1d(6),
            act=nn.ReLU(),
            b=nn.Conv1d(6, 8, 3, stride=2),
            pool=nn.AdaptiveMaxPool1d(1),
            flat=nn.Flatten(),
            head=nn.Linear(8, 5),
        ),
        normal(3, 9),
        free="a b",
        pinned="head",
    ),
    _net(
        "conv3d",
        lambda: seq(
            a=nn.Conv3d(2, 4, 3, padding=1, bias=False),
            bn=nn.BatchNorm3d(4),
            act=nn.ReLU(),
            pool=nn.AvgPool3d(2),
            b=nn.Conv3d(4, 6, 2),
            flat=nn.Flatten(),
            head=nn.Linear(6, 5),
        ),
        normal(2, 4, 4, 4),
        free="a b",
        pinned="head",
    ),
    _net(
        "convnext",
        lambda: classifier(6, nn.Conv2d(3, 6, 2, stride=2), ConvNeXtBlock(6, 12), ConvNeXtBlock(6, 10)),
        normal(),
        free="body.0 body.1.dw body.1.gamma body.1.mlp.up body.2.mlp.up",
        pinned="head",
    ),
    _net(
        "siamese",
        Siamese,
        lambda: (torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)),
        free="trunk.a.conv trunk.b.conv",
        pinned="head",
    ),
    _net(
        "pixel_shuffle",
        lambda: seq(
            a=nn.Conv2d(3, 6, 3, padding=1),
            act=nn.ReLU(),
            up=nn.Conv2d(6, 16, 3, padding=1),
            shuffle=nn.PixelShuffle(2),
            head=nn.Conv2d(4, 3, 3, padding=1),
        ),
        normal(3, 4, 4),
        free="a up",
        pinned="head",
    ),
    _net(
        "group_norm",
        lambda: classifier(
            12,
            nn.Conv2d(3, 8, 3),
            nn.GroupNorm(4, 8),
            nn.ReLU(),
            nn.Conv2d(8, 12, 3),
            nn.GroupNorm(1, 12),
            nn.Tanh(),
        ),
        normal(),
        free="body.3",
        pinned="head",
    ),
    _net(
        "instance_norm",
        lambda: classifier(8, nn.Conv2d(3, 6, 3), nn.InstanceNorm2d(6, affine=True), nn.ReLU(), nn.Conv2d(6, 8, 3)),
        normal(),
        free="body.0 body.3",
        pinned="head",
    ),
    _net(
        "prelu",
        lambda: classifier(6, nn.Conv2d(3, 8, 3), nn.PReLU(8), nn.Conv2d(8, 6, 3), nn.PReLU()),
        normal(),
        free="body.0 body.2",
        pinned="head",
    ),
    _net("resampling", Resampling, normal(), free="conv1 conv2", pinned="head"),
    _net(
        "weight_norm",
        lambda: classifier(8, WeightNormedConv(3, 6), nn.ReLU(), WeightNormedConv(6, 8), nn.ReLU()),
        normal(),
        pinned="head",
    ),
    _net("multi_output", MultiOutput, normal(), free="stem.conv body.conv", pinned="classes boxes aux"),
    _net("channel_cumsum", ChannelCumsum, normal(), free="stem.conv", pinned="body.conv head"),
)

LINEAR = (
    _net(
        "mlp",
        lambda: seq(
            a=nn.Linear(5, 8),
            bn=nn.BatchNorm1d(8),
            act_a=nn.ReLU(),
            b=nn.Linear(8, 6),
            act_b=nn.ELU(),
            head=nn.Linear(6, 3),
        ),
        normal(5),
        free="a b",
        pinned="head",
    ),
    _net("bare_parameters", BareParameters, normal(5), free="stem mix", pinned="head"),
    _net("written_flags", WrittenFlags, normal(5), free="three", pinned="one two head"),
    _net("einsum", Einsum, normal(4, 5), free="w1 w2", pinned="head"),
    _net(
        "swiglu",
        lambda: seq(stem=nn.Linear(5, 8), glu=SwiGLU(8, 12), head=nn.Linear(8, 3)),
        normal(5),
        free="stem glu.up glu.down",
        pinned="head",
    ),
    _net(
        "glu",
        lambda: seq(stem=nn.Linear(5, 8), act=nn.Tanh(), up=nn.Linear(8, 12), glu=nn.GLU(), head=nn.Linear(6, 3)),
        normal(5),
        free="stem",
        pinned="head",
    ),
    _net(
        "mixer",
        lambda: TokenNet(8, block(8, Transposed(mlp(4, 6, 4)), mlp(8, 12, 8))),
        normal(4, 5),
        free="embed blocks.0.attn.body.attn.inner.up blocks.0.ffn.body.ffn.up",
        pinned="blocks.0.attn.body.attn.inner.down head",
    ),
)
ATTENTION = (
    _net(
        "vit",
        ViT,
        normal(),
        free="patch cls blocks.0.attn.body.attn.qkv blocks.1.ffn.body.ffn.up",
        pinned="head",
    ),
    _net(
        "attention_matmul",
        lambda: TokenNet(8, block(8, MatmulAttention(8, 3, 4), mlp(8, 12, 8))),
        normal(4, 5),
        free="embed blocks.0.attn.body.attn.q blocks.0.attn.body.attn.v blocks.0.ffn.body.ffn.up",
        pinned="head",
    ),
    _net(
        "attention_value_dim",
        lambda: TokenNet(8, block(8, ValueDimAttention(8, 2, 4, 6), mlp(8, 12, 8))),
        normal(4, 5),
        free="embed blocks.0.attn.body.attn.v",
        pinned="head",
    ),
    _net(
        "attention_module",
        lambda: TokenNet(8, block(8, TorchAttention(8, 2), mlp(8, 12, 8))),
        normal(4, 5),
        free="blocks.0.ffn.body.ffn.up",
        pinned="head",
    ),
    _net(
        "encoder",
        lambda: TokenNet(8, *(nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True) for _ in range(2))),
        normal(4, 5),
        free="blocks.0.linear1 blocks.1.linear1",
        pinned="head",
    ),
    _net(
        "gpt_tied",
        GPT,
        tokens(),
        free="tok pos blocks.0.attn.body.attn.qkv blocks.0.ffn.body.ffn.up",
        pinned="head",
    ),
    _net(
        "nano_gpt",
        nano_gpt,
        tokens(),
        free="tok blocks.0.attn.body.attn.c_attn blocks.1.ffn.body.ffn.up",
        pinned="head",
    ),
    _net(
        "nano_gpt_by_hand",
        lambda: nano_gpt(9),
        tokens(),
        free="tok blocks.0.attn.body.attn.c_attn blocks.1.ffn.body.ffn.up",
        pinned="head",
    ),
    _net(
        "reduced_tokens",
        lambda: TokenNet(8, *(block(8, Reduced(8, 2), mlp(8, 12, 8)) for _ in range(2))),
        normal(8, 5),
        free="embed blocks.0.attn.body.attn.conv blocks.1.ffn.body.ffn.up",
        pinned="head",
    ),
    _net("places", Places, tokens(), free="tok", pinned="head"),
    _net("llama", llama, tokens(), free="tok layer.ffn.body.ffn.up", pinned="head"),
    _net(
        "attention_hard_view",
        lambda: TokenNet(8, block(8, HardViewAttention(8), mlp(8, 12, 8))),
        normal(4, 5),
        free="embed blocks.0.ffn.body.ffn.up",
        pinned="blocks.0.attn.body.attn.q blocks.0.attn.body.attn.k blocks.0.attn.body.attn.v head",
    ),
)
RECURRENT = (
    _net(
        "lstm_lm",
        lambda: Recurrent(nn.LSTM(5, 6, num_layers=2, batch_first=True), 11),
        tokens(),
        "embed",
        "head",
    ),
    _net("gru", lambda: Recurrent(nn.GRU(5, 6, batch_first=True), 3, last=True), tokens(), "embed", "head"),
    _net(
        "bilstm",
        lambda: Recurrent(nn.LSTM(5, 6, batch_first=True, bidirectional=True), 3),
        tokens(),
        "embed",
        "head",
    ),
    _net("rnn", lambda: Recurrent(nn.RNN(5, 6, batch_first=True), 3, last=True), tokens(), "embed", "head"),
    _net("rnn_relu", lambda: Recurrent(nn.RNN(5, 6, 2, "relu"), 3), tokens(2), "embed rnn", "head"),
    _net("bigru", lambda: Recurrent(nn.GRU(4, 5, 2, bidirectional=True), 3), tokens(2), "embed rnn", "head"),
    _net(
        "lstm_projected",
        lambda: Recurrent(nn.LSTM(4, 8, 2, proj_size=3, bidirectional=True), 3),
        tokens(2),
        "embed rnn",
        "head",
    ),
    _net(
        "lstm_tied",
        lambda: InChunks(Stateful(nn.LSTM(5, 7, batch_first=True), nn.LSTM(7, 5, batch_first=True), tied=True)),
        tokens(2),
        "inner.embed inner.layers.0",
    ),
    _net(
        "lstm_stacked",
        lambda: InChunks(Stateful(nn.LSTM(5, 6, batch_first=True), nn.LSTM(6, 4, batch_first=True))),
        tokens(2),
        "inner.embed inner.layers.0 inner.layers.1",
        "inner.head",
    ),
    *(
        _net(
            name,
            lambda cell=cell: InChunks(StatefulCell(cell(5, 6))),
            tokens(2),
            "inner.embed inner.cell",
            "inner.head",
        )
        for name, cell in (("lstm_cell", nn.LSTMCell), ("gru_cell", nn.GRUCell), ("rnn_cell", nn.RNNCell))
    ),
    _net("rnn_attention", AttendedStates, tokens(3), "embed rnn query", "head"),
    _net("packed_lstm", lambda: Packed(nn.LSTM(5, 6, 2, bidirectional=True)), tokens(4), "embed rnn", "head"),
    _net("packed_gru", lambda: Packed(nn.GRU(5, 6)), tokens(4), "embed rnn", "head"),
    _net("encoder_decoder", EncoderDecoder, tokens(3), "embed encoder bridge decoder", "head"),
)
BY_POSITION = (
    *(
        _net(name, lambda collect=collect: Graph(collect), graph, free="embed message update", pinned="head")
        for name, collect in (
            ("graph_added", added),
            ("graph_scattered", scattered),
            ("graph_put", put),
            ("graph_segments", in_segments),
        )
    ),
    _net(
        "filled_in",
        FilledIn,
        lambda: (torch.tensor([[1, 0, 4, 0], [0, 7, 2, 3]]), torch.randn(3, 5)),
        free="tok image mlp.up",
        pinned="head",
    ),
    _net(
        "experts",
        lambda: seq(embed=nn.Linear(5, 8), experts=Residual(Experts(8, 6, 5)), head=nn.Linear(8, 3)),
        normal(7, 5),
        free="embed experts.body.up experts.body.down",
        pinned="experts.body.router head",
    ),
    _net("fourier", FourierOperator, normal(3, 10), free="lift spectral.weight local project", pinned="head"),
    _net("bilinear", Pairs, normal(5), free="one two meet", pinned="head"),
    _net("prototypes", Prototypes, normal(5), free="embed prototypes", pinned="head"),
    _net("rounded", Rounded, normal(5), free="one two", pinned="head"),
)

ZOO: dict[str, ZooNet] = {net.name: net for net in (*CONVOLUTIONAL, *LINEAR, *ATTENTION, *RECURRENT, *BY_POSITION)}
