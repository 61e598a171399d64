"""The fixes by name. One table: what `eureka fixes` prints and what a config may say."""

from __future__ import annotations

from eureka.registry import Entry, Registry

FIXES = Registry(
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
    ],
)
