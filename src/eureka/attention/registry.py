"""The fixes by name. One table: what `eureka fixes` prints and what a config may say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.registry import Entry, Registry

if TYPE_CHECKING:
    from eureka.attention.operator import Operator

FIXES: Registry[Operator] = Registry(
    "fix",
    [
        Entry(
            name="softmax",
            target="eureka.attention.softmax:Softmax",
            summary="softmax(q·k / √d): the baseline",
            source="Vaswani et al. 2017",
        ),
        Entry(
            name="temperature",
            target="eureka.attention.temperature:Temperature",
            summary="softmax(q·k / τ) with one lower temperature τ",
            source="Hoffmann et al. 2024",
        ),
        Entry(
            name="heat_treatment",
            target="eureka.attention.heat_treatment:HeatTreatment",
            summary="a temperature that rises from 1/3 to √d over the first half of training",
            source="Hoffmann et al. 2024",
        ),
        Entry(
            name="norm_softmax",
            target="eureka.attention.norm_softmax:NormSoftmax",
            summary="logits divided by min(√d, standard deviation of the row)",
            source="Jiang et al. 2023",
            preset={"statistic": "std"},
        ),
        Entry(
            name="norm_softmax_var",
            target="eureka.attention.norm_softmax:NormSoftmax",
            summary="logits divided by min(√d, variance of the row)",
            source="Hoffmann et al. 2024, as their published recipe runs it",
            preset={"statistic": "var"},
        ),
        Entry(
            name="learnable_temperature",
            target="eureka.attention.learnable_temperature:LearnableTemperature",
            summary="softmax(q·k / τ) with τ learned for each head",
            source="folklore; used by Liu et al. 2022 (Swin v2)",
        ),
        Entry(
            name="qk_norm",
            target="eureka.attention.qk_norm:QKNorm",
            summary="softmax(g·cos(q, k)) with the gain g learned for each head",
            source="Henry et al. 2020",
        ),
        Entry(
            name="qk_layernorm",
            target="eureka.attention.qk_layernorm:QKLayerNorm",
            summary="layer norms on q and k before their product",
            source="Dehghani et al. 2023 (ViT-22B)",
        ),
        Entry(
            name="ssmax",
            target="eureka.attention.ssmax:SSMax",
            summary="logits multiplied by s·log n, n the number of visible keys, s learned for each head",
            source="Nakanishi 2025",
        ),
        Entry(
            name="softmax_plus_one",
            target="eureka.attention.softmax_plus_one:SoftmaxPlusOne",
            summary="exp(a) / (1 + Σ exp(a)): a head may look at nothing",
            source="Miller 2023",
        ),
        Entry(
            name="sigmoid",
            target="eureka.attention.sigmoid:Sigmoid",
            summary="σ(a - log n): every weight on its own",
            source="Ramapuram et al. 2024",
        ),
        Entry(
            name="linear",
            target="eureka.attention.linear:Linear",
            summary="q·k / √d as the weight itself: no softmax",
            source="Katharopoulos et al. 2020, without a feature map",
        ),
        Entry(
            name="sinkhorn",
            target="eureka.attention.sinkhorn:Sinkhorn",
            summary="rows and columns normalised in turn",
            source="Sander et al. 2022",
        ),
        Entry(
            name="qr",
            target="eureka.attention.qr:QR",
            summary="squares of the orthonormal factor of the logits: doubly stochastic",
            source="Born et al. 2025 (QDSFormer)",
        ),
        Entry(
            name="gradient_balance",
            target="eureka.attention.gradient_balance:GradientBalance",
            summary="a control: plain softmax whose q and k gradients are rescaled to the size of v's",
            source="Hoffmann et al. 2024",
        ),
    ],
    base="eureka.attention.operator:Operator",
    group="eureka.fixes",
)
