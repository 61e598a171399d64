"""Faults of training scripts, each planted by one edit of a script's text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eureka.doctor.finding import Cause

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Planted:
    """A mistake as people make it, and what its diagnosis shall be."""

    name: str
    script: str
    """which of the scripts, without .py"""
    old: str
    """stands in the script exactly once"""
    new: str
    cause: Cause
    args: tuple[str, ...] = ()
    """what the script is started with"""


def edited(planted: Planted) -> str:
    """The script's text with the fault in it."""
    text = (SCRIPTS / f"{planted.script}.py").read_text(encoding="utf-8")
    if (count := text.count(planted.old)) != 1:
        raise ValueError(f"{planted.name}: {planted.script}.py has its old text {count} times, not once")
    return text.replace(planted.old, planted.new)


PLANTED: tuple[Planted, ...] = (
    Planted(
        name="rate_mistyped",
        script="plain",
        old='"--lr", type=float, default=1e-3',
        new='"--lr", type=float, default=1e-7',
        cause="lr_too_small",
    ),
    Planted(
        name="warmup_of_a_longer_run",
        script="accelerate_loop",
        old="min(1.0, (step + 1) / 20)",
        new="min(1.0, (step + 1) / 100_000)",
        cause="lr_too_small",
    ),
    Planted(
        name="decay_of_epochs_at_every_step",
        script="lightning_fit",
        old="CosineAnnealingLR(optimizer, T_max=self.trainer.max_steps)",
        new="ExponentialLR(optimizer, gamma=0.9)",
        cause="lr_too_small",
    ),
    Planted(
        name="rate_hundredfold", script="hf_trainer", old="learning_rate=3e-3", new="learning_rate=3e-1", cause="lr_too_large"
    ),
    Planted(
        name="adam_with_the_rate_of_sgd",
        script="lstm_lm",
        old="torch.optim.SGD(model.parameters(), lr=args.lr)",
        new="torch.optim.Adam(model.parameters(), lr=args.lr)",
        cause="lr_too_large",
    ),
    Planted(
        name="update_by_hand_hundredfold",
        script="by_hand",
        old="lr = 0.2 if i < 300 else 0.05",
        new="lr = 20.0 if i < 300 else 5.0",
        cause="lr_too_large",
    ),
    Planted(
        name="groups_by_wrong_names",
        script="foreach",
        old=("    for p in model.parameters():\n        (no_decay if p.ndim < 2 else decay).append(p)\n"),
        new=(
            "    for name, p in model.named_parameters():\n"
            '        if name.endswith("bias"):\n'
            "            no_decay.append(p)\n"
            '        elif name.endswith("kernel"):\n'
            "            decay.append(p)\n"
        ),
        cause="not_in_optimizer",
    ),
    Planted(
        name="matrices_in_no_group",
        script="scaler",
        old="torch.optim.AdamW(model.parameters(), lr",
        new="torch.optim.AdamW([p for p in model.parameters() if p.ndim < 2], lr",
        cause="not_in_optimizer",
    ),
    # The gradient of lora_A is 0 as long as lora_B is, which the optimiser does not have; nor has it the head.
    Planted(
        name="half_of_the_adapter",
        script="lora",
        old="[p for p in model.parameters() if p.requires_grad]",
        new='[p for n, p in model.named_parameters() if "lora_A" in n]',
        cause="not_in_optimizer",
    ),
    Planted(
        name="cleared_before_the_step",
        script="ddp",
        old=(
            "            optimizer.zero_grad()\n"
            "            loss = F.cross_entropy(model(inputs), targets)\n"
            "            loss.backward()\n"
        ),
        new=(
            "            loss = F.cross_entropy(model(inputs), targets)\n"
            "            loss.backward()\n"
            "            optimizer.zero_grad()\n"
        ),
        cause="no_gradient",
    ),
    # The last layer still learns, on states of a random network.
    Planted(
        name="detached_state",
        script="fabric_loop",
        old="self.fc(last.squeeze(0))",
        new="self.fc(last.squeeze(0).detach())",
        cause="no_gradient",
    ),
    Planted(
        name="loss_made_anew",
        script="hydra_like",
        old="loss = criterion(logits, y[idx])",
        new="loss = torch.tensor(criterion(logits, y[idx]).item(), requires_grad=True)",
        cause="no_gradient",
    ),
    Planted(
        name="labels_not_permuted",
        script="accelerate_loop",
        old="labels[perm[300:]]",
        new="labels[300:]",
        cause="labels_unrelated",
    ),
    Planted(
        name="images_shuffled_alone",
        script="vit",
        old="images = (images - 0.305) / 0.376",
        new=("images = (images - 0.305) / 0.376\n    images = images[torch.randperm(len(images))]"),
        cause="labels_unrelated",
    ),
    Planted(
        name="shifted_twice",
        script="lstm_lm",
        old=(
            "    seq_len = min(args.bptt, len(source) - 1 - i)\n"
            "    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)\n"
        ),
        new=(
            "    seq_len = min(args.bptt, len(source) - 2 - i)\n"
            "    return source[i : i + seq_len], source[i + 2 : i + 2 + seq_len].reshape(-1)\n"
        ),
        cause="labels_misaligned",
    ),
    # Only background is left in the loss, which falls as before; the mean IoU is a third.
    Planted(
        name="outline_over_the_shape",
        script="segment",
        old=("            mask[distance <= 3.5] = IGNORE\n            mask[distance <= 2.5] = kind\n"),
        new=("            mask[distance <= 2.5] = kind\n            mask[distance <= 3.5] = IGNORE\n"),
        cause="labels_ignored",
    ),
    # The loss is as before without the digit 0, which is never foretold; the test loss has it.
    Planted(
        name="zero_ignored",
        script="plain",
        old="loss = F.cross_entropy(logits, y_train[idx])",
        new="loss = F.cross_entropy(logits, y_train[idx], ignore_index=0)",
        cause="labels_ignored",
    ),
    # The training loss falls as before; see the test loss.
    Planted(
        name="class_zero_ignored",
        script="gcn",
        old="loss_train = F.nll_loss(output[idx_train], labels[idx_train])",
        new="loss_train = F.nll_loss(output[idx_train], labels[idx_train], ignore_index=0)",
        cause="labels_ignored",
    ),
    # The loss goes to its floor; see the accuracy.
    Planted(
        name="labels_divided_like_pixels",
        script="sgd_onecycle",
        old="torch.tensor(digits.target[:1400])",
        new="torch.tensor(digits.target[:1400] / 16).long()",
        cause="labels_constant",
    ),
    Planted(
        name="sigmoid_before_logits_loss",
        script="hydra_like",
        old="nn.Sequential(*layers, nn.Linear(width, 1))",
        new="nn.Sequential(*layers, nn.Linear(width, 1), nn.Sigmoid())",
        cause="loss_misuse",
    ),
    # Accuracy is hardly worse; the loss stops at 1.5.
    Planted(
        name="softmax_before_cross_entropy",
        script="ddp",
        old="loss = F.cross_entropy(model(inputs), targets)",
        new="loss = F.cross_entropy(F.softmax(model(inputs), dim=1), targets)",
        cause="loss_misuse",
    ),
    # Its sums over later queries tell the future, so the loss falls; what it generates is not sorted.
    Planted(
        name="softmax_over_queries",
        script="lambda_mlp",
        old="F.softmax(att, dim=-1)",
        new="F.softmax(att, dim=-2)",
        cause="attention_axis",
    ),
    # The loss falls faster than before; what it generates is not sorted.
    Planted(
        name="no_causal_mask",
        script="lambda_mlp",
        old="torch.tril(torch.ones(config.block_size, config.block_size))",
        new="torch.ones(config.block_size, config.block_size)",
        cause="future_leak",
    ),
    Planted(name="mask_the_wrong_way_round", script="modular", old=".triu(1)", new=".tril(-1)", cause="mask_blocks_context"),
    Planted(
        name="attention_mask_inverted",
        script="hf_trainer",
        old="torch.ones_like(ids)",
        new="torch.zeros_like(ids)",
        cause="mask_blocks_context",
    ),
    Planted(
        name="same_seed_at_every_draw",
        script="by_hand",
        old="(64,), generator=g)",
        new="(64,), generator=torch.Generator().manual_seed(2147483647))",
        cause="data_repeated",
    ),
    Planted(
        name="one_batch_left_from_debugging",
        script="ema",
        old="idx = torch.randint(len(x_train), (opt.batch_size,))",
        new="idx = torch.arange(opt.batch_size)",
        cause="data_repeated",
    ),
    Planted(
        name="first_rows_only",
        script="two_optimizers",
        old="torch.randint(1500, (64,))",
        new="torch.arange(64)",
        cause="data_repeated",
    ),
    Planted(
        name="one_class_after_the_other",
        script="sgd_steplr",
        old="    train_loader = DataLoader(Subset(dataset, range(1500)), batch_size=args.batch_size, shuffle=True)\n",
        new=(
            "    by_class = digits.target[:1500].argsort()\n"
            "    train_loader = DataLoader(Subset(dataset, by_class), batch_size=args.batch_size)\n"
        ),
        cause="data_sorted",
    ),
    Planted(
        name="cast_after_division",
        script="plain",
        old="images = digits.images / 16.0",
        new='images = (digits.images / 255).astype("uint8")',
        cause="inputs_constant",
    ),
    # The noise of the augmentation is all that differs between images.
    Planted(
        name="first_image_always",
        script="workers_fork",
        old="self.images[index].astype",
        new="self.images[0].astype",
        cause="inputs_constant",
    ),
    Planted(
        name="features_not_standardised",
        script="click_like",
        old="    x = (x - x.mean(dim=0)) / x.std(dim=0)\n",
        new="",
        cause="inputs_unscaled",
    ),
    # The regression swamps the trunk: the cross-entropy is what does not fall.
    Planted(
        name="ink_not_standardised",
        script="loss_params",
        old=("    ink = x.sum(dim=1)\n    ink = (ink - ink.mean()) / ink.std()\n"),
        new="    ink = torch.tensor(digits.data.sum(axis=1), dtype=torch.float32)\n",
        cause="targets_unscaled",
    ),
    Planted(
        name="prior_bias_everywhere",
        script="sgd_steplr",
        old="    model = build_model()\n",
        new=(
            "    model = build_model()\n"
            "    for m in model.modules():\n"
            '        if hasattr(m, "bias"):\n'
            "            nn.init.constant_(m.bias, -4.6)  # prior of 0.01\n"
        ),
        cause="dead_units",
    ),
    Planted(
        name="clip_thousandfold_tighter",
        script="lstm_lm",
        old='"--clip", type=float, default=0.25',
        new='"--clip", type=float, default=2.5e-4',
        cause="clip_too_tight",
    ),
    Planted(
        name="clip_added_too_tight",
        script="mixup",
        old="        loss.backward()\n",
        new=("        loss.backward()\n        torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-4)\n"),
        cause="clip_too_tight",
    ),
    Planted(
        name="clip_by_value_too_tight",
        script="sgd_onecycle",
        old="        loss.backward()\n",
        new=("        loss.backward()\n        torch.nn.utils.clip_grad_value_(model.parameters(), 1e-5)\n"),
        cause="clip_too_tight",
    ),
    Planted(name="decay_thousandfold", script="gcn", old="default=5e-4", new="default=5e-1", cause="weight_decay_too_large"),
    Planted(
        name="decay_hundredfold",
        script="nano",
        old="weight_decay = 1e-1",
        new="weight_decay = 1e1",
        cause="weight_decay_too_large",
    ),
    Planted(
        name="decay_of_a_tenth",
        script="mixup",
        old='default=1e-4, type=float, help="weight decay"',
        new='default=1e-1, type=float, help="weight decay"',
        cause="weight_decay_too_large",
    ),
    Planted(
        name="dropout_as_keep_probability",
        script="vit",
        old='"--dropout", type=float, default=0.1',
        new='"--dropout", type=float, default=0.9',
        cause="dropout_too_large",
    ),
    Planted(
        name="rows_without_positions",
        script="two_optimizers",
        old="self.embed(x) + self.pos",
        new="self.embed(x)",
        cause="positions_missing",
    ),
    Planted(
        name="patches_without_positions",
        script="vit",
        old="self.dropout(x + self.pos_embedding)",
        new="self.dropout(x)",
        cause="positions_missing",
    ),
    Planted(
        name="position_always_zero",
        script="lambda_mlp",
        old="torch.arange(0, idx.size(1), device=idx.device).unsqueeze(0)",
        new="torch.zeros_like(idx)",
        cause="positions_missing",
    ),
    Planted(
        name="no_skip_connections",
        script="nano",
        old=("        x = x + self.attn(self.ln_1(x))\n        return x + self.mlp(self.ln_2(x))\n"),
        new=("        x = self.attn(self.ln_1(x))\n        return self.mlp(self.ln_2(x))\n"),
        cause="rank_collapse",
    ),
    Planted(
        name="attention_of_unit_weights",
        script="padded",
        old="        self.linear = nn.Linear(d_model, 1)\n",
        new=(
            "        self.linear = nn.Linear(d_model, 1)\n"
            "        for name, p in self.transformer_encoder.named_parameters():\n"
            '            if "in_proj" in name:\n'
            "                nn.init.normal_(p)\n"
        ),
        cause="attention_saturated",
    ),
    # Queries and keys stay 0, since each is the other's gradient; values learn.
    Planted(
        name="attention_of_zero_weights",
        script="padded",
        old="        self.linear = nn.Linear(d_model, 1)\n",
        new=(
            "        self.linear = nn.Linear(d_model, 1)\n"
            "        for name, p in self.transformer_encoder.named_parameters():\n"
            '            if "in_proj" in name:\n'
            "                nn.init.zeros_(p)\n"
        ),
        cause="attention_flat",
    ),
    # Training is bit for bit the same: see the accuracy.
    Planted(
        name="momentum_as_in_keras",
        script="sgd_onecycle",
        old="nn.BatchNorm2d(c_out)",
        new="nn.BatchNorm2d(c_out, momentum=0.001)",
        cause="norm_mode",
    ),
    Planted(name="never_cleared", script="sgd_steplr", old="        optimizer.zero_grad()\n", new="", cause="gradients_kept"),
    Planted(name="never_cleared_adam", script="vae", old="        optimizer.zero_grad()\n", new="", cause="gradients_kept"),
    Planted(
        name="never_cleared_workers",
        script="workers_spawn",
        old="            optimizer.zero_grad()\n",
        new="",
        cause="gradients_kept",
    ),
    Planted(
        name="constant_pixels_divided_by_zero",
        script="lightning_fit",
        old="x = (x - x.mean()) / x.std()",
        new="x = (x - x.mean(0)) / x.std(0)",
        cause="not_a_number",
    ),
    Planted(name="empty_rows_divided_by_zero", script="gcn", old=".clamp(min=1), labels", new=", labels", cause="not_a_number"),
)
