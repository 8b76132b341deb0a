# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# torchvision and transformers are no part of the lock.
"""Models of torchvision and transformers, with their own code and random weights; small where their options allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torchvision
import transformers
from torch import nn

from benchmarks.zoo_cases import Case, drawn, integers


class Named(nn.Module):
    """A model of transformers with tensors in and tensors out."""

    def __init__(self, model: Any, names: tuple[str, ...], results: tuple[str, ...], fixed: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.results, self.fixed = model, names, results, fixed

    def forward(self, *given: Any) -> Any:
        found = self.model(**dict(zip(self.names, given, strict=True)), **self.fixed, return_dict=True)
        return tuple(getattr(found, name) for name in self.results)


def classifier(name: str, size: int = 64, batch: int = 2, classes: int = 10, **options: Any) -> Case:
    """A classifier of torchvision."""

    def model() -> Any:
        return getattr(torchvision.models, name)(weights=None, num_classes=classes, **options)

    inputs = {"x": {0: "batch"}}
    return Case(name, "torchvision", model, lambda: {"x": drawn(batch, 3, size, size)}, inputs, classes=classes)


def from_transformers(
    name: str,
    config: Callable[[], Any],
    model: str,
    inputs: Callable[[], dict[str, Any]],
    results: tuple[str, ...],
    dynamic: dict[str, dict[int, str]] | None = None,
    **fixed: Any,
) -> Case:
    """A model of transformers."""

    def build() -> Any:
        return Named(getattr(transformers, model)(config()), tuple(inputs()), results, fixed)

    return Case(name, "transformers", build, inputs, dynamic or {})


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
OPEN = {0: "batch", 1: "sequence"}


def masked() -> dict[str, Any]:
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 10:] = 0
    return {"input_ids": integers(100, 2, 16), "attention_mask": mask}


MASKED = {"input_ids": OPEN, "attention_mask": OPEN}
DECODER = {**SMALL, "vocab_size": 100, "num_key_value_heads": 2}
EXPERTS = {"experts_implementation": "batched_mm"}
"""Products for each token: the default counts tokens by a histogram, which no exporter writes."""

CASES = (
    classifier("mobilenet_v2"),
    classifier("mobilenet_v3_small"),
    classifier("efficientnet_b0"),
    classifier("convnext_tiny"),
    classifier("resnext50_32x4d"),
    classifier("densenet121"),
    classifier("inception_v3", 96, aux_logits=False, init_weights=False),
    classifier("googlenet", aux_logits=False, init_weights=False),
    classifier("shufflenet_v2_x0_5"),
    classifier("squeezenet1_1"),
    classifier("regnet_y_400mf"),
    classifier("mnasnet0_5"),
    classifier("swin_t"),
    Case(
        "vit", "torchvision",
        lambda: torchvision.models.VisionTransformer(64, 16, 4, 4, 64, 128, num_classes=10),
        lambda: {"x": drawn(2, 3, 64, 64)}, classes=10,
    ),
    Case(
        "lraspp", "torchvision",
        lambda: Results(torchvision.models.segmentation.lraspp_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=4), "out"),
        lambda: {"x": drawn(1, 3, 64, 64)},
    ),
    Case(
        "r3d_18", "torchvision", lambda: torchvision.models.video.r3d_18(weights=None, num_classes=10),
        lambda: {"x": drawn(1, 3, 4, 32, 32)}, classes=10,
    ),
    from_transformers(
        "bert", lambda: transformers.BertConfig(vocab_size=100, **SMALL), "BertModel", masked,
        ("last_hidden_state", "pooler_output"), MASKED,
    ),
    from_transformers(
        "llama", lambda: transformers.LlamaConfig(**DECODER), "LlamaForCausalLM", masked, ("logits",), MASKED,
        use_cache=False,
    ),
    from_transformers(
        "qwen3_moe",
        lambda: transformers.Qwen3MoeConfig(
            **DECODER, **EXPERTS, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32),
        "Qwen3MoeForCausalLM", masked, ("logits",), use_cache=False,
    ),
    from_transformers(
        "gpt2", lambda: transformers.GPT2Config(vocab_size=100, n_embd=64, n_layer=2, n_head=4), "GPT2LMHeadModel",
        masked, ("logits",), MASKED, use_cache=False,
    ),
    from_transformers(
        "t5", lambda: transformers.T5Config(vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4),
        "T5ForConditionalGeneration",
        lambda: {**masked(), "decoder_input_ids": integers(100, 2, 6, seed=1)}, ("logits",), use_cache=False,
    ),
    from_transformers(
        "whisper",
        lambda: transformers.WhisperConfig(
            vocab_size=100, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, pad_token_id=0,
            decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, num_mel_bins=20,
            max_source_positions=50, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
            begin_suppress_tokens=None),
        "WhisperForConditionalGeneration",
        lambda: {"input_features": drawn(1, 20, 100), "decoder_input_ids": integers(100, 1, 6)}, ("logits",),
        use_cache=False,
    ),
    from_transformers(
        "wav2vec2",
        lambda: transformers.Wav2Vec2Config(
            vocab_size=32, **SMALL, conv_dim=(32, 32), conv_kernel=(10, 3), conv_stride=(5, 2),
            num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4),
        "Wav2Vec2ForCTC", lambda: {"input_values": drawn(1, 800)}, ("logits",),
    ),
    from_transformers(
        "detr",
        lambda: transformers.DetrConfig(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, num_queries=10, d_model=64,
            backbone_config=transformers.ResNetConfig(
                embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"]),
            encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=64, decoder_ffn_dim=64),
        "DetrForObjectDetection", lambda: {"pixel_values": drawn(1, 3, 64, 64)}, ("logits", "pred_boxes"),
    ),
    from_transformers(
        "clip",
        lambda: transformers.CLIPConfig(
            text_config={**SMALL, "vocab_size": 100, "eos_token_id": 99},
            vision_config={**SMALL, "image_size": 32, "patch_size": 8}),
        "CLIPModel", lambda: {**masked(), "pixel_values": drawn(2, 3, 32, 32)}, ("logits_per_image",),
    ),
    from_transformers(
        "segformer",
        lambda: transformers.SegformerConfig(
            hidden_sizes=[16, 32], depths=[1, 1], num_encoder_blocks=2, sr_ratios=[4, 2], patch_sizes=[7, 3],
            strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=32),
        "SegformerForSemanticSegmentation", lambda: {"pixel_values": drawn(1, 3, 64, 64)}, ("logits",),
    ),
    from_transformers(
        "mamba2_hf",
        lambda: transformers.MambaConfig(
            vocab_size=100, hidden_size=32, state_size=8, num_hidden_layers=2, use_mambapy=False),
        "MambaForCausalLM", lambda: {"input_ids": integers(100, 1, 8)}, ("logits",), use_cache=False,
    ),
)  # fmt: skip


class Results(nn.Module):
    """One entry of a model's dictionary of results."""

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x: Any) -> Any:
        return self.model(x)[self.name]
