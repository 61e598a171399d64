"""Attention operators: one file each, chosen by name (`registry.FIXES`), all with the same call (`operator.Operator`).

Shapes, in every file of this package: B batch, H heads, Hk key heads (Hk divides H), Q queries, K keys, D head dimension.
"""
