"""Networks of libraries that meristem was not written for, small and with random weights, and inputs for them.

Libraries are imported where a network of theirs is made, so that one may be missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from zoo_own import OWN

Made = tuple[nn.Module, tuple[Any, ...]]  # a model, and the positional inputs of a call


@dataclass(frozen=True)
class Network:
    """How a network is made: ``make`` is called with the arguments. It is compared in this precision and mode."""

    family: str
    name: str
    make: Callable[..., Made]
    arguments: dict[str, Any] = field(default_factory=dict)
    precision: torch.dtype = torch.float64
    training: bool = False

    def build(self) -> Made:
        return self.make(**self.arguments)


# --- transformers ---------------------------------------------------------------------------------------------------


def tokens(length: int = 12) -> torch.Tensor:
    return torch.randint(3, 60, (2, length))


def image(size: int = 32, channels: int = 3) -> torch.Tensor:
    return torch.randn(2, channels, size, size)


INPUTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "tokens": lambda: (tokens(),),
    "tokens, mask": lambda: (tokens(), torch.ones(2, 12, dtype=torch.long)),
    "sequence to sequence": lambda: (tokens(), None, tokens(6)),
    "speech to text": lambda: (torch.randn(2, 16, 40), None, tokens(6)),
    "sound": lambda: (torch.randn(2, 1600),),
    "image": lambda: (image(),),
    "image 64": lambda: (image(64),),
    "text and image": lambda: (tokens(), image()),
    "video": lambda: (torch.randn(2, 4, 3, 32, 32),),
}
# The names by which transformers calls the same sizes, for most of its text models.
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}
VISION: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
FEW_KEYS: dict[str, Any] = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}


def of_transformers(model: str, config: str, inputs: str, sizes: dict[str, Any]) -> Made:
    import transformers

    made = getattr(transformers, config)(**sizes)
    for part in (made, *(value for value in vars(made).values() if hasattr(value, "use_cache"))):
        if hasattr(part, "use_cache"):  # what is kept for the next token would count as an output
            part.use_cache = False
    return getattr(transformers, model)(made), INPUTS[inputs]()


def _hf(
    name: str, model: str, config: str, inputs: str, sizes: dict[str, Any], precision: torch.dtype = torch.float64
) -> Network:
    arguments = {"model": model, "config": config, "inputs": inputs, "sizes": sizes}
    return Network("transformers", name, of_transformers, arguments, precision)


_T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "pad_token_id": 0}
_BART = {"vocab_size": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
_BART |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 32}
_WHISPER = {key: size for key, size in _BART.items() if key != "max_position_embeddings"}
_WHISPER |= {"num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 20, "pad_token_id": 0}
_WHISPER |= {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
_WAV2VEC2 = {**SIZES, "conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2)}
_WAV2VEC2 |= {"num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
_SEGFORMER = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]}
_MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
_CLIP_VISION = {**VISION, "hidden_size": 24}
_CONVNEXT = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1], "num_labels": 5}
_VIDEO = {**VISION, "num_frames": 4, "num_labels": 5}

TRANSFORMERS = (
    _hf("bert", "BertForSequenceClassification", "BertConfig", "tokens, mask", SIZES),
    _hf("roberta", "RobertaForMaskedLM", "RobertaConfig", "tokens", SIZES),
    _hf(
        "distilbert",
        "DistilBertForSequenceClassification",
        "DistilBertConfig",
        "tokens",
        {"vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 32},
    ),
    _hf("electra", "ElectraForPreTraining", "ElectraConfig", "tokens", {**SIZES, "embedding_size": 24}),
    _hf("albert", "AlbertForMaskedLM", "AlbertConfig", "tokens", {**SIZES, "embedding_size": 24}),
    _hf(
        "deberta-v2",
        "DebertaV2ForSequenceClassification",
        "DebertaV2Config",
        "tokens",
        {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8},
    ),
    _hf(
        "gpt2",
        "GPT2LMHeadModel",
        "GPT2Config",
        "tokens",
        {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32},
    ),
    _hf("gpt-neox", "GPTNeoXForCausalLM", "GPTNeoXConfig", "tokens", SIZES),
    _hf(
        "opt",
        "OPTForCausalLM",
        "OPTConfig",
        "tokens",
        {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32},
    ),
    _hf("llama", "LlamaForCausalLM", "LlamaConfig", "tokens", FEW_KEYS),
    _hf("mistral", "MistralForCausalLM", "MistralConfig", "tokens", FEW_KEYS),
    _hf("qwen2", "Qwen2ForCausalLM", "Qwen2Config", "tokens", FEW_KEYS),
    _hf("gemma", "GemmaForCausalLM", "GemmaConfig", "tokens", FEW_KEYS),
    _hf("phi", "PhiForCausalLM", "PhiConfig", "tokens", SIZES),
    _hf("falcon", "FalconForCausalLM", "FalconConfig", "tokens", {**SIZES, "new_decoder_architecture": False}),
    _hf("mixtral", "MixtralForCausalLM", "MixtralConfig", "tokens", {**FEW_KEYS, **_MOE}, torch.float32),
    _hf("mamba", "MambaForCausalLM", "MambaConfig", "tokens", {**SIZES, "state_size": 4}),
    _hf("t5", "T5ForConditionalGeneration", "T5Config", "sequence to sequence", _T5),
    _hf("bart", "BartForConditionalGeneration", "BartConfig", "sequence to sequence", _BART),
    _hf("whisper", "WhisperForConditionalGeneration", "WhisperConfig", "speech to text", _WHISPER),
    _hf("wav2vec2", "Wav2Vec2ForCTC", "Wav2Vec2Config", "sound", _WAV2VEC2),
    _hf("vit", "ViTForImageClassification", "ViTConfig", "image", VISION),
    _hf("dinov2", "Dinov2ForImageClassification", "Dinov2Config", "image", VISION),
    _hf(
        "swin",
        "SwinForImageClassification",
        "SwinConfig",
        "image",
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    _hf("convnextv2", "ConvNextV2ForImageClassification", "ConvNextV2Config", "image 64", _CONVNEXT),
    _hf(
        "segformer",
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        "image 64",
        {**_SEGFORMER, "decoder_hidden_size": 32},
    ),
    _hf(
        "clip",
        "CLIPModel",
        "CLIPConfig",
        "text and image",
        {"text_config": {**SIZES, "eos_token_id": 2}, "vision_config": _CLIP_VISION, "projection_dim": 16},
    ),
    _hf("timesformer", "TimesformerForVideoClassification", "TimesformerConfig", "video", _VIDEO),
)

# --- diffusers ------------------------------------------------------------------------------------------------------


def of_diffusers(model: str, sizes: dict[str, Any], inputs: Callable[[], tuple[Any, ...]]) -> Made:
    import diffusers

    return getattr(diffusers, model)(**sizes), inputs()


def _diffuser(name: str, model: str, sizes: dict[str, Any], inputs: Callable[[], tuple[Any, ...]]) -> Network:
    return Network("diffusers", name, of_diffusers, {"model": model, "sizes": sizes, "inputs": inputs})


_STEP = torch.tensor([3, 7])
_BLOCKS = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 4, "sample_size": 16}

DIFFUSERS = (
    _diffuser(
        "unet2d",
        "UNet2DModel",
        {
            **_BLOCKS,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
            "attention_head_dim": 8,
        },
        lambda: (image(16), _STEP),
    ),
    _diffuser(
        "unet2d-condition",
        "UNet2DConditionModel",
        {
            **_BLOCKS,
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
            "cross_attention_dim": 24,
            "attention_head_dim": 8,
        },
        lambda: (image(16, 4), _STEP, torch.randn(2, 5, 24)),
    ),
    _diffuser(
        "autoencoder-kl",
        "AutoencoderKL",
        {
            **_BLOCKS,
            "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
            "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
        },
        lambda: (image(16),),
    ),
    _diffuser(
        "vq-model",
        "VQModel",
        {
            **_BLOCKS,
            "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
            "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
            "num_vq_embeddings": 16,
        },
        lambda: (image(16),),
    ),
    _diffuser(
        "dit",
        "DiTTransformer2DModel",
        {"num_attention_heads": 4, "attention_head_dim": 8, "in_channels": 4, "num_layers": 2, "sample_size": 8},
        lambda: (image(8, 4), _STEP, _STEP),
    ),
    _diffuser(
        "sd3",
        "SD3Transformer2DModel",
        {
            "sample_size": 8,
            "in_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 8,
            "num_attention_heads": 4,
            "joint_attention_dim": 24,
            "caption_projection_dim": 32,
            "pooled_projection_dim": 16,
            "out_channels": 4,
            "pos_embed_max_size": 8,
        },
        lambda: (image(8, 4), torch.randn(2, 5, 24), torch.randn(2, 16), _STEP),
    ),
)

# --- monai ----------------------------------------------------------------------------------------------------------


def of_monai(model: str, sizes: dict[str, Any], shape: tuple[int, ...]) -> Made:
    from monai.networks import nets

    return getattr(nets, model)(**sizes), (torch.randn(2, 1, *shape),)


def _monai(name: str, model: str, sizes: dict[str, Any], shape: tuple[int, ...] = (32, 32)) -> Network:
    return Network("monai", name, of_monai, {"model": model, "sizes": sizes, "shape": shape})


_FLAT = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}

MONAI = (
    _monai("unet", "UNet", {**_FLAT, "channels": (8, 16, 32), "strides": (2, 2), "num_res_units": 1}),
    _monai("basic-unet", "BasicUNet", {**_FLAT, "features": (8, 8, 16, 16, 32, 8)}),
    _monai("segresnet", "SegResNet", {**_FLAT, "init_filters": 8}),
    _monai("vnet", "VNet", {**_FLAT}),
    _monai("attention-unet", "AttentionUnet", {**_FLAT, "channels": (8, 16, 32), "strides": (2, 2)}),
    _monai(
        "dynunet",
        "DynUNet",
        {
            **_FLAT,
            "kernel_size": [3, 3, 3],
            "strides": [1, 2, 2],
            "upsample_kernel_size": [2, 2],
            "filters": [8, 16, 32],
        },
    ),
    _monai(
        "unetr",
        "UNETR",
        {**_FLAT, "img_size": (32, 32), "feature_size": 8, "hidden_size": 32, "mlp_dim": 48, "num_heads": 4},
    ),
    _monai("swin-unetr", "SwinUNETR", {**_FLAT, "feature_size": 12, "depths": (1, 1, 1, 1)}, (64, 64)),
)

# --- segmentation-models-pytorch ------------------------------------------------------------------------------------


def of_smp(model: str, size: int) -> Made:
    import segmentation_models_pytorch as smp

    return getattr(smp, model)("resnet18", encoder_weights=None, classes=3), (image(size),)


_SMP = {"Unet": 64, "UnetPlusPlus": 64, "FPN": 64, "PSPNet": 64, "DeepLabV3Plus": 64, "Linknet": 64, "MAnet": 64}
_SMP |= {"PAN": 128}  # it pools what is left of an image three times
_SMP_FAMILY = "segmentation-models-pytorch"
SMP = tuple(Network(_SMP_FAMILY, name, of_smp, {"model": name, "size": size}) for name, size in _SMP.items())

# --- torchvision ----------------------------------------------------------------------------------------------------


def of_torchvision_detection(model: str, sizes: dict[str, Any]) -> Made:
    """A detector with targets, so that it runs in training mode; in evaluation mode it finds nothing likely."""
    from torchvision.models import detection

    made = getattr(detection, model)(weights=None, weights_backbone=None, num_classes=4, **sizes)
    target = {"boxes": torch.tensor([[4.0, 4.0, 60.0, 60.0]]), "labels": torch.tensor([1])}
    return made, ([torch.rand(3, 96, 96), torch.rand(3, 96, 96)], [target, dict(target)])


def of_torchvision_video(model: str, shape: tuple[int, ...]) -> Made:
    from torchvision.models import video

    return getattr(video, model)(weights=None, num_classes=5), (torch.randn(1, 3, *shape),)


_SMALL = {"min_size": 96, "max_size": 96}
_ALL_BOXES = {"rpn_batch_size_per_image": 10**6, "box_batch_size_per_image": 10**6}  # instead of some at random


def _detector(name: str, sizes: dict[str, Any]) -> Network:
    arguments = {"model": name, "sizes": sizes}
    return Network("torchvision detection", name, of_torchvision_detection, arguments, training=True)


def _video(name: str, shape: tuple[int, ...]) -> Network:
    return Network("torchvision video", name, of_torchvision_video, {"model": name, "shape": shape})


TORCHVISION = (
    _detector("fasterrcnn_mobilenet_v3_large_320_fpn", {**_SMALL, **_ALL_BOXES}),
    _detector("retinanet_resnet50_fpn", _SMALL),
    _detector("fcos_resnet50_fpn", _SMALL),
    _detector("ssdlite320_mobilenet_v3_large", {}),
    _video("r3d_18", (4, 32, 32)),
    _video("s3d", (14, 224, 224)),
)

# --- x-transformers -------------------------------------------------------------------------------------------------


def of_x_transformers(layers: str, options: dict[str, Any]) -> Made:
    import x_transformers as x

    attention = getattr(x, layers)(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
    if layers == "Decoder":
        return x.TransformerWrapper(num_tokens=64, max_seq_len=16, attn_layers=attention), (tokens(),)
    return x.ViTransformerWrapper(image_size=32, patch_size=8, num_classes=5, attn_layers=attention), (image(),)


def _x(name: str, layers: str, options: dict[str, Any]) -> Network:
    return Network("x-transformers", name, of_x_transformers, {"layers": layers, "options": options})


X_TRANSFORMERS = (
    _x("decoder", "Decoder", {}),
    _x("decoder-rotary-swiglu", "Decoder", {"rotary_pos_emb": True, "ff_glu": True, "ff_swish": True}),
    _x("decoder-alibi-few-keys", "Decoder", {"alibi_pos_bias": True, "attn_kv_heads": 2, "use_rmsnorm": True}),
    _x("vision-encoder", "Encoder", {}),
)

LIBRARIES = {  # the module to import for the networks of a family
    "transformers": "transformers",
    "diffusers": "diffusers",
    "monai": "monai.networks.nets",
    "segmentation-models-pytorch": "segmentation_models_pytorch",
    "torchvision detection": "torchvision",
    "torchvision video": "torchvision",
    "x-transformers": "x_transformers",
}
NETWORKS: dict[str, Network] = {
    f"{network.family} {network.name}": network
    for network in (
        *TRANSFORMERS,
        *DIFFUSERS,
        *MONAI,
        *SMP,
        *TORCHVISION,
        *X_TRANSFORMERS,
        *(Network("own", name, make) for name, make in OWN.items()),
    )
}
