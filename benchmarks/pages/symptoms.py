"""What people see and search for, by the cause that `eureka.diagnose` names."""

from __future__ import annotations

from dataclasses import dataclass

from eureka.doctor.finding import Cause


@dataclass(frozen=True)
class Symptom:
    """A cause in the words of somebody who has it."""

    seen: str
    """what the curve, or the model, looks like"""
    means: str
    """what is the matter"""
    do: str
    """what to do about it"""


SYMPTOMS: dict[Cause, Symptom] = {
    "lr_too_small": Symptom(
        "The loss falls by less than a percent in hundreds of steps; the learning rate has decayed to, or starts at, 0",
        "The steps are too small to get anywhere.",
        "Raise the rate: by powers of ten until the loss moves. Look at where the schedule starts and ends.",
    ),
    "lr_too_large": Symptom(
        "The loss rose early and has been flat since; it jumps about and never goes down",
        "The steps are so large that they destroyed the weights, or jump over every valley.",
        "Lower the rate, and go back to a checkpoint from before the loss rose.",
    ),
    "not_in_optimizer": Symptom(
        "Part of the model never changes; the masked-LM loss diverges; a new head stays at chance",
        "Parameters get a gradient, but the optimiser does not know them.",
        "Build the optimiser after the whole model, from `model.parameters()`. Hold layers in `nn.ModuleList`, not in a list.",
    ),
    "no_gradient": Symptom(
        "The loss is exactly constant; all gradients are None or 0",
        "Nothing reaches the weights: a frozen layer, a `detach`, or `zero_grad()` between `backward()` and `step()`.",
        "Follow the gradient from the loss backwards. Call `zero_grad()` before `backward()`.",
    ),
    "labels_unrelated": Symptom(
        "The loss sits at ln(classes) whatever you try; training accuracy is that of guessing",
        "The labels do not follow from the inputs: an index is off, or one of the two was shuffled alone.",
        "Print some inputs beside their labels. Look at how they are joined.",
    ),
    "labels_misaligned": Symptom(
        "A language model's loss stays far above what others report, though everything seems right",
        "The target is not the next token: labels are shifted twice, or not at all.",
        "Shift exactly once. Models of Hugging Face shift labels themselves.",
    ),
    "labels_ignored": Symptom(
        "Masked-LM loss stuck at 7, next sentence at 50 %; one class is never predicted",
        "`ignore_index` or a mask takes real labels out of the loss.",
        "Use -100 for what shall be ignored, and only there.",
    ),
    "labels_constant": Symptom(
        "The loss goes to 0 in a few steps, and the model always says the same",
        "Every label is the same: only one class is read, or rows are sorted by label and only the first were seen.",
        "Look at how labels are read; shuffle the rows.",
    ),
    "loss_misuse": Symptom(
        "Stuck at 2.30 with ten classes; the loss falls a little and stops well above 0",
        "The loss gets what it does not expect: a softmax before the cross-entropy, one-hot labels as classes, a wrong axis.",
        "Give `cross_entropy` raw logits and class indices.",
    ),
    "attention_axis": Symptom(
        "Attention weights are all 1, or all equal, in attention that was written by hand",
        "The softmax runs over the wrong axis, or tokens and batch are exchanged.",
        "Take the softmax over the keys; mind `batch_first`.",
    ),
    "future_leak": Symptom(
        "A language model's loss falls to nearly 0 within a few steps; what it generates is nonsense",
        "A token sees those after it, and copies the answer.",
        "Use a causal mask in every layer, and nothing else that mixes tokens.",
    ),
    "mask_blocks_context": Symptom(
        "The loss stops at the unigram level (about 7 for English words); the model ignores its context",
        "The mask hides what the model needs; True and False may be exchanged.",
        "In PyTorch's `scaled_dot_product_attention` True means *may be seen*; in `nn.MultiheadAttention` it means *is hidden*.",
    ),
    "padding_used": Symptom(
        "The loss depends on the batch size or on the length of the longest sample",
        "Padding is attended to, or counted in the loss.",
        "Pass the padding mask to the attention, and ignore the labels of padding.",
    ),
    "data_repeated": Symptom(
        "Training loss falls only at epoch ends; masked LM sits at 7 on a corpus with duplicated lines",
        "The same rows come again and again: they are memorised, and nothing else is learned.",
        "Look at the sampler, the collation and the source for duplicates; shuffle.",
    ),
    "data_sorted": Symptom(
        "The loss falls, jumps up and falls again; validation stays at chance; `shuffle=True` was forgotten",
        "Rows come sorted by label: one class is learned at a time, and the others are forgotten.",
        "Shuffle the rows.",
    ),
    "inputs_constant": Symptom(
        "The output is the same for every input; the loss is that of the label frequencies",
        "The inputs do not differ, or the model does not get to see them.",
        "Print a batch as it enters the model.",
    ),
    "inputs_unscaled": Symptom(
        "Pixels from 0 to 255, or features in thousands; the loss is huge or does not move",
        "Inputs have a size that nothing else in the model has.",
        "Normalise them to a mean of 0 and a spread of 1.",
    ),
    "targets_unscaled": Symptom(
        "Prices, counts or years to foretell; the squared error is in the millions and hardly falls",
        "The outputs begin near 0, and a step moves them by little; the targets are far away.",
        "Normalise the targets in training, and turn the outputs back into their units afterwards.",
    ),
    "dead_units": Symptom(
        "Stuck at 2.30 after a spike; activations of a layer are all 0",
        "ReLUs that give 0 for everything have no gradient and do not come back.",
        "Begin again with a lower rate or another initialisation, or use GELU.",
    ),
    "precision": Symptom(
        "Learns in float32, not in bf16; the loss stops where the rate gets small",
        "Weights in 16 bits round small updates away.",
        "Keep the weights in float32 and use autocast.",
    ),
    "clip_too_tight": Symptom(
        "Progress is as slow as if the rate were a hundredth; the clipped norm is always at its limit",
        "Clipping takes nearly all of every gradient.",
        "Clip at about the usual norm of the gradient, or not at all.",
    ),
    "weight_decay_too_large": Symptom(
        "The loss falls and creeps back up; weights shrink towards 0",
        "Weight decay takes more than the gradient gives.",
        "0.01 to 0.1 is usual with AdamW.",
    ),
    "dropout_too_large": Symptom(
        "Training loss stays high, and is better with `model.eval()`",
        "Dropout drowns the signal: two passes of one batch disagree.",
        "0 to 0.2 is usual.",
    ),
    "positions_missing": Symptom(
        "Accuracy 55 % on a two-step task; shuffling the tokens does not change the loss",
        "The model cannot tell where a token stands: positions are missing, or drowned by the content.",
        "Add positions, or make them as large as the content (`eureka.clear_start`).",
    ),
    "rank_collapse": Symptom(
        "All hidden states are equal; every token predicts the same",
        "Each layer makes the tokens more alike until nothing tells them apart.",
        "Look for missing skip connections, and for norms that undo them.",
    ),
    "attention_saturated": Symptom(
        "Attention looks at one token only, from the start, and does not change",
        "Logits are so large that the softmax has no gradient.",
        "Begin with smaller W_Q and W_K, or normalise q and k.",
    ),
    "attention_flat": Symptom(
        "Attention weights all equal; slow for thousands of steps and then suddenly fast, on some seeds",
        "Attention is so uniform that W_Q and W_K hardly learn where to look.",
        "A clear start before training, a sharper softmax while it waits. Race them on your own run.",
    ),
    "norm_mode": Symptom(
        "Training works only with large batches; validation is far off though training is fine",
        "BatchNorm is in the wrong mode, or sees too few samples.",
        "Call `model.train()` after every evaluation; use LayerNorm where batches are small.",
    ),
    "gradients_kept": Symptom(
        "The loss falls at first and then swings, or stands still at any rate; the gradient's norm only grows",
        "No step clears the gradients, so each adds its own to those of all before it.",
        "Call `optimizer.zero_grad()` once before every `backward()`.",
    ),
    "not_a_number": Symptom(
        "The loss is nan or inf, at once or from some batch on",
        "A weight, an input, a target or a module gives a value that is no number; one step later all weights are.",
        "Mend the batch or the operation that it names, and go back to weights from before.",
    ),
    "healthy": Symptom(
        "Nothing is wrong with it",
        "It learns, it is at its floor, or it waits and no fault was found.",
        "If it waits, let a race try what shortens the wait.",
    ),
}
