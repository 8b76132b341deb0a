# pyright: reportMissingImports=false
# timm is no part of the lock.
"""Image classifiers of timm, with its own code and random weights."""

from __future__ import annotations

from typing import Any

import timm

from benchmarks.zoo_cases import Case, drawn


def classifier(name: str, size: int = 64, opset: int | None = None, **options: Any) -> Case:
    """Of two small images."""
    return images(f"timm_{name}", name, (2, 3, size, size), 10, opset, **options)


def images(
    case: str, name: str, shape: tuple[int, ...], classes: int, opset: int | None = None, **options: Any
) -> Case:
    """Without what is drawn in training (dropout), which PyTorch draws otherwise."""

    def model() -> Any:
        return timm.create_model(name, num_classes=classes, drop_rate=0.0, **options)

    return Case(case, "timm", model, lambda: {"x": drawn(*shape)}, classes=classes, opset=opset)


def resized(name: str, size: int = 64, opset: int | None = None) -> Case:
    """A transformer that is made for a size."""
    return classifier(name, size, opset, img_size=size)


CASES = (
    *map(classifier, (
        "convmixer_768_32", "convnext_atto", "davit_tiny", "densenet121", "dpn68", "edgenext_xx_small",
        "efficientnet_b0", "fastvit_t8", "focalnet_tiny_srf", "ghostnet_100", "hrnet_w18_small",
        "inception_next_tiny", "lambda_resnet26t", "mambaout_femto", "mobilenetv3_small_100",
        "mobilenetv4_conv_small", "mobileone_s0", "mobilevit_xxs", "nextvit_small", "poolformer_s12",
        "rdnet_tiny", "regnetx_002", "repvgg_a0", "repvit_m1", "res2net50_26w_4s", "resnest14d", "selecsls42b",
        "shvit_s1", "starnet_s1", "tiny_vit_5m_224", "vovnet39a", "xception41",
    )),
    *map(resized, (
        "cait_xxs24_224", "coat_tiny", "convit_tiny", "deit3_small_patch16_224", "eva02_tiny_patch14_224",
        "gcvit_xxtiny", "gmlp_s16_224", "levit_128s", "maxvit_tiny_tf_224", "mixer_s32_224", "mvitv2_tiny",
        "pit_ti_224", "resmlp_12_224", "sequencer2d_s", "swin_tiny_patch4_window7_224", "tnt_s_patch16_224",
        "twins_pcpvt_small", "xcit_nano_12_p16_224",
    )),
    resized("volo_d1_224", opset=18),
)  # fmt: skip
