"""Models of transformers: the batch is a dict, and the model computes its own loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.faults.bases.optimiser import BATCHES, optimiser
from benchmarks.faults.data.chain import chain
from benchmarks.faults.data.masked import masked
from benchmarks.faults.data.pictures import CENTRED, SIDE, TILE, Values, pictures
from benchmarks.faults.data.rows import PAD, rows
from benchmarks.faults.models import hugging_face
from benchmarks.faults.setup import Base, Draw, Setup


def own_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    loss: Tensor = model(**batch).loss
    return loss


def gpt2(draw: Draw, *, name: str = "adamw", lr: float = 4e-3, **model: Any) -> Setup:
    vocabulary, length = draw.pick(12, 16), draw.pick(16, 20)
    task = chain(vocabulary, draw.generator)
    made = hugging_face.gpt2(vocabulary, length, **model)
    sequences = [task.sample(32, length, draw.generator) for _ in range(BATCHES)]
    score = task.score(lambda model, tokens: model(input_ids=tokens).logits, length, draw.generator)
    batches = [{"input_ids": tokens, "labels": tokens.clone()} for tokens in sequences]
    return Setup(made, batches, own_loss, optimiser(made, name, draw.near(lr)), score)


def bert_decoder(draw: Draw, *, is_decoder: bool = True, **model: Any) -> Setup:
    """BERT as a decoder; it too shifts the labels itself."""
    vocabulary, length = draw.pick(12, 16), draw.pick(16, 20)
    task = chain(vocabulary, draw.generator)
    made = hugging_face.bert("LMHeadModel", vocabulary, length, is_decoder=is_decoder, **model)
    sequences = [task.sample(32, length, draw.generator) for _ in range(BATCHES)]
    score = task.score(lambda model, tokens: model(input_ids=tokens).logits, length, draw.generator)
    batches = [{"input_ids": tokens, "labels": tokens.clone()} for tokens in sequences]
    return Setup(made, batches, own_loss, optimiser(made, "adamw", draw.near(3e-3)), score)


def bert_masked(draw: Draw, **model: Any) -> Setup:
    task = masked(draw.pick(10, 14), draw.pick(10, 12), draw.generator)
    made = hugging_face.bert("ForMaskedLM", task.vocabulary, task.length, **model)
    samples = [task.sample(48, draw.generator) for _ in range(BATCHES)]
    score = task.score(lambda model, tokens: model(input_ids=tokens).logits, draw.generator)
    batches = [{"input_ids": tokens, "labels": labels} for tokens, labels in samples]
    return Setup(made, batches, own_loss, optimiser(made, "adamw", draw.near(3e-3)), score)


def bert_rows(draw: Draw, *, masked: bool = True, stale: bool = False, **model: Any) -> Setup:
    """Classifies padded rows from the first token; `masked` hands the model the mask of the padding."""
    task = rows(2, draw.pick(4, 5), draw.pick(24, 28), draw.generator, stale)
    made = hugging_face.bert("ForSequenceClassification", task.vocabulary, task.length, num_labels=2, **model)

    def outputs(model: nn.Module, tokens: Tensor, real: Tensor) -> Tensor:
        logits: Tensor = model(input_ids=tokens, attention_mask=real.long() if masked else None).logits
        return logits

    batches = []
    for _ in range(BATCHES):
        tokens, real, labels = task.sample(32, draw.generator)
        batches.append({"input_ids": tokens, "attention_mask": real.long(), "labels": labels})
    loss = own_loss if masked else loss_without_mask
    return Setup(made, batches, loss, optimiser(made, "adamw", draw.near(2e-3)), task.score(outputs, draw.generator))


def loss_without_mask(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    loss: Tensor = model(input_ids=batch["input_ids"], labels=batch["labels"]).loss
    return loss


def bert_buffers(draw: Draw, **options: Any) -> Setup:
    """Stale tokens where padding is."""
    return bert_rows(draw, **{"stale": True, **options})


def vit(draw: Draw, *, values: Values = CENTRED, **model: Any) -> Setup:
    task = pictures("place", draw.generator, values=values)
    made = hugging_face.vit(SIDE, TILE, task.answers, **model)
    samples = [task.sample(32, draw.generator) for _ in range(BATCHES)]
    score = task.score(lambda model, shown: model(pixel_values=shown).logits, draw.generator)
    batches = [{"pixel_values": shown, "labels": answer} for shown, answer in samples]
    return Setup(made, batches, own_loss, optimiser(made, "adamw", draw.near(4e-3)), score)


def gpt2_padded(draw: Draw, **model: Any) -> Setup:
    """Sequences of different length, padded on the right; padding is no label."""
    length = draw.pick(20, 24)
    task = chain(draw.pick(13, 17), draw.generator, first=1)
    made = hugging_face.gpt2(task.vocabulary, length, **model)
    batches = []
    for _ in range(BATCHES):
        tokens = task.sample(32, length, draw.generator)
        real = torch.arange(length) < torch.randint(4, length // 2, (32, 1), generator=draw.generator)
        tokens = tokens.masked_fill(~real, PAD)
        batches.append({"input_ids": tokens, "attention_mask": real.long(), "labels": tokens.masked_fill(~real, -100)})
    score = task.score(lambda model, shown: model(input_ids=shown).logits, length // 2 - 1, draw.generator)
    return Setup(made, batches, own_loss, optimiser(made, "adamw", draw.near(4e-3)), score)


HF_GPT2 = Base("hf gpt2", "hf", gpt2)
HF_GPT2_PADDED = Base("hf gpt2 padded", "hf", gpt2_padded)
HF_DECODER = Base("hf bert decoder", "hf", bert_decoder)
HF_MASKED = Base("hf bert masked", "hf", bert_masked, 180)
HF_ROWS = Base("hf bert rows", "hf", bert_rows)
HF_BUFFERS = Base("hf bert buffers", "hf", bert_buffers, 150)
HF_VIT = Base("hf vit", "hf", vit, 220)
