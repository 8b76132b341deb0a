# pyright: reportMissingImports=false
# timm and transformers are no part of the lock.
"""Models of timm and transformers at the size that they are used at: four images of 224 x 224, or their like. For
times: without the stage `gradients`, since the reference takes long for that."""

from __future__ import annotations

import torch
import transformers

from benchmarks.zoo_cases import Case, drawn, integers
from benchmarks.zoo_library import from_transformers
from benchmarks.zoo_timm import images


def pictures(name: str) -> Case:
    return images(f"{name.removesuffix('_224')}_224", name, (4, 3, 224, 224), 1000)


CASES = (
    *map(pictures, (
        "resnet18", "resnet50", "res2net50_26w_4s", "regnetx_002", "repvgg_a0", "densenet121", "hrnet_w18_small",
        "mobilenetv3_small_100", "ghostnet_100", "efficientnet_b0", "mobilevit_xxs", "edgenext_xx_small",
        "convnext_atto", "poolformer_s12", "focalnet_tiny_srf", "mixer_s32_224", "deit3_small_patch16_224",
        "swin_tiny_patch4_window7_224", "coat_tiny", "davit_tiny", "maxvit_tiny_tf_224",
    )),
    from_transformers(
        "bert_base", transformers.BertConfig, "BertModel",
        lambda: {"input_ids": integers(30522, 4, 128)}, ("last_hidden_state", "pooler_output"),
    ),
    from_transformers(
        "gpt2_base", transformers.GPT2Config, "GPT2Model",
        lambda: {"input_ids": integers(50257, 2, 256), "attention_mask": torch.ones(2, 256, dtype=torch.int64)},
        ("last_hidden_state",), use_cache=False,
    ),
    from_transformers(
        "t5_small", lambda: transformers.T5Config(num_layers=6), "T5ForConditionalGeneration",
        lambda: {"input_ids": integers(32128, 4, 64), "decoder_input_ids": integers(32128, 4, 32, seed=1)},
        ("logits",), use_cache=False,
    ),
    from_transformers(
        "wav2vec2_base", lambda: transformers.Wav2Vec2Config(layerdrop=0.0), "Wav2Vec2Model",
        lambda: {"input_values": drawn(2, 16000)}, ("last_hidden_state",),
    ),
)  # fmt: skip
