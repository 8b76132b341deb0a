# pyright: reportMissingImports=false
# torchvision and transformers are no part of the lock.
"""More families of transformers and torchvision: one of each kind of attention, position, state and fusion."""

from __future__ import annotations

from typing import Any

import torchvision
import transformers

from benchmarks.zoo_cases import Case, drawn, integers
from benchmarks.zoo_library import (
    DECODER,
    EXPERTS,
    MASKED,
    SMALL,
    Results,
    classifier,
    from_transformers,
    masked,
)

_TWO = {
    "vocab_size": 100, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
}  # fmt: skip
_VISION = {**SMALL, "image_size": 32, "patch_size": 8}
_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _decoder(name: str, config: Any, model: str, open_axes: bool = True) -> Case:
    dynamic = MASKED if open_axes else None
    return from_transformers(name, config, model, masked, ("logits",), dynamic, use_cache=False)


def _encoder(name: str, config: Any, model: str) -> Case:
    return from_transformers(name, config, model, masked, ("last_hidden_state",), MASKED)


def _pictures(name: str, config: Any, model: str, size: int, result: str = "logits") -> Case:
    return from_transformers(name, config, model, lambda: {"pixel_values": drawn(1, 3, size, size)}, (result,))


def _translated() -> dict[str, Any]:
    return {**masked(), "decoder_input_ids": integers(100, 2, 6, seed=1)}


def _heard() -> dict[str, Any]:
    return {"input_features": drawn(1, 64, 20), "decoder_input_ids": integers(100, 1, 6)}


CASES = (
    _decoder(
        "gemma3", lambda: transformers.Gemma3TextConfig(**DECODER, head_dim=16, sliding_window=8), "Gemma3ForCausalLM"
    ),
    _decoder("phi3", lambda: transformers.Phi3Config(**DECODER, **_ENDS), "Phi3ForCausalLM"),
    _decoder(
        "bloom", lambda: transformers.BloomConfig(vocab_size=100, hidden_size=64, n_layer=2, n_head=4),
        "BloomForCausalLM",
    ),
    _decoder(
        "gptj", lambda: transformers.GPTJConfig(vocab_size=100, n_embd=64, n_layer=2, n_head=4, rotary_dim=8),
        "GPTJForCausalLM",
    ),
    _decoder(
        "gpt_oss",
        lambda: transformers.GptOssConfig(
            **DECODER, **EXPERTS, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=8),
        "GptOssForCausalLM", open_axes=False,
    ),
    _decoder(
        "deepseek_v3",
        lambda: transformers.DeepseekV3Config(
            **{**DECODER, "num_key_value_heads": 4}, **EXPERTS, moe_intermediate_size=32, n_routed_experts=4,
            num_experts_per_tok=2, n_group=2, topk_group=1, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
            qk_nope_head_dim=8, v_head_dim=16, first_k_dense_replace=1),
        "DeepseekV3ForCausalLM", open_axes=False,
    ),
    from_transformers(
        "rwkv",
        lambda: transformers.RwkvConfig(
            vocab_size=100, hidden_size=32, attention_hidden_size=32, num_hidden_layers=2, context_length=16),
        "RwkvForCausalLM", lambda: {"input_ids": integers(100, 1, 8)}, ("logits",), use_cache=False,
    ),
    _encoder(
        "deberta_v2",
        lambda: transformers.DebertaV2Config(
            vocab_size=100, **SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8,
            type_vocab_size=0),
        "DebertaV2Model",
    ),
    _encoder(
        "modernbert",
        lambda: transformers.ModernBertConfig(
            vocab_size=100, **SMALL, pad_token_id=0, global_attn_every_n_layers=2, local_attention=8),
        "ModernBertModel",
    ),
    _encoder(
        "xlnet", lambda: transformers.XLNetConfig(vocab_size=100, d_model=64, n_layer=2, n_head=4, d_inner=128),
        "XLNetModel",
    ),
    _encoder(
        "funnel",
        lambda: transformers.FunnelConfig(
            vocab_size=100, block_sizes=[1, 1], d_model=64, n_head=4, d_head=16, d_inner=128),
        "FunnelModel",
    ),
    from_transformers(
        "marian", lambda: transformers.MarianConfig(**_TWO, pad_token_id=0, decoder_start_token_id=1),
        "MarianMTModel", _translated, ("logits",), use_cache=False,
    ),
    from_transformers(
        "speech2text",
        lambda: transformers.Speech2TextConfig(
            **_TWO, input_feat_per_channel=20, input_channels=1, conv_channels=32, max_source_positions=100,
            max_target_positions=50),
        "Speech2TextForConditionalGeneration", _heard, ("logits",), use_cache=False,
    ),
    from_transformers(
        "wavlm",
        lambda: transformers.WavLMConfig(
            vocab_size=32, **SMALL, conv_dim=(32, 32), conv_kernel=(10, 3), conv_stride=(5, 2),
            num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4),
        "WavLMModel", lambda: {"input_values": drawn(1, 800)}, ("last_hidden_state",),
    ),
    from_transformers(
        "encodec",
        lambda: transformers.EncodecConfig(
            num_filters=4, hidden_size=16, codebook_dim=16, codebook_size=16, upsampling_ratios=[4, 2],
            num_residual_layers=1, target_bandwidths=[3.0], sampling_rate=800),
        "EncodecModel", lambda: {"input_values": drawn(1, 1, 320)}, ("audio_values",),
    ),
    from_transformers(
        "perceiver",
        lambda: transformers.PerceiverConfig(
            num_latents=8, d_latents=32, d_model=32, num_blocks=1, num_self_attends_per_block=1,
            num_self_attention_heads=4, num_cross_attention_heads=4, vocab_size=100, max_position_embeddings=16,
            qk_channels=16, v_channels=32),
        "PerceiverModel", lambda: {"inputs": drawn(2, 16, 32)}, ("last_hidden_state",),
    ),
    _pictures("beit", lambda: transformers.BeitConfig(**_VISION), "BeitForImageClassification", 32),
    _pictures(
        "swinv2",
        lambda: transformers.Swinv2Config(
            image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
        "Swinv2ForImageClassification", 32,
    ),
    _pictures(
        "mobilevit",
        lambda: transformers.MobileViTConfig(
            image_size=64, hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 16, 24, 32, 40, 48, 64]),
        "MobileViTForImageClassification", 64,
    ),
    _pictures(
        "levit",
        lambda: transformers.LevitConfig(
            image_size=64, hidden_sizes=[32, 64, 96], num_attention_heads=[2, 4, 6], depths=[1, 1, 1],
            key_dim=[8, 8, 8]),
        "LevitForImageClassification", 64,
    ),
    _pictures(
        "sam_vision",
        lambda: transformers.SamVisionConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=64, patch_size=8,
            output_channels=16, window_size=4, global_attn_indexes=[1], mlp_dim=64),
        "SamVisionModel", 64, "last_hidden_state",
    ),
    from_transformers(
        "vit_mae",
        lambda: transformers.ViTMAEConfig(
            **_VISION, decoder_hidden_size=32, decoder_num_hidden_layers=1, decoder_num_attention_heads=2,
            decoder_intermediate_size=64),
        "ViTMAEForPreTraining", lambda: {"pixel_values": drawn(2, 3, 32, 32), "noise": drawn(2, 16)}, ("logits",),
    ),
    from_transformers(
        "videomae", lambda: transformers.VideoMAEConfig(**_VISION, num_frames=4), "VideoMAEForVideoClassification",
        lambda: {"pixel_values": drawn(1, 4, 3, 32, 32)}, ("logits",),
    ),
    from_transformers(
        "decision",
        lambda: transformers.DecisionTransformerConfig(
            state_dim=7, act_dim=3, hidden_size=64, n_layer=2, n_head=4, max_ep_len=64),
        "DecisionTransformerModel",
        lambda: {
            "states": drawn(1, 8, 7), "actions": drawn(1, 8, 3), "rewards": drawn(1, 8, 1),
            "returns_to_go": drawn(1, 8, 1), "timesteps": integers(64, 1, 8), "attention_mask": integers(1, 1, 8) + 1,
        },
        ("action_preds",),
    ),
    classifier("resnet18"),
    classifier("efficientnet_v2_s"),
    Case(
        "deeplabv3", "torchvision",
        lambda: Results(torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=4), "out"),
        lambda: {"x": drawn(1, 3, 64, 64)},
    ),
)  # fmt: skip
