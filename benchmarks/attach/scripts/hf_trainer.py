"""A small GPT-2 from a config, trained with the Hugging Face Trainer on number sequences."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class CountingDataset(Dataset):
    """Sequences a, a + d, a + 2d, ... modulo the vocabulary, where a and d are random."""

    def __init__(self, num_examples, length=16, vocab_size=23, seed=0):
        generator = torch.Generator().manual_seed(seed)
        start = torch.randint(vocab_size, (num_examples, 1), generator=generator)
        stride = torch.randint(1, 6, (num_examples, 1), generator=generator)
        self.input_ids = (start + stride * torch.arange(length)) % vocab_size

    def __len__(self):
        return len(self.input_ids)

    def __getitem__(self, idx):
        ids = self.input_ids[idx]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    predictions = logits[:, :-1].argmax(-1)
    return {"next_token_accuracy": float((predictions == labels[:, 1:]).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--output_dir", default=None)
    args = parser.parse_args()
    set_seed(0)

    config = GPT2Config(
        vocab_size=23,
        n_positions=32,
        n_embd=48,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)

    training_args = TrainingArguments(
        output_dir=args.output_dir or tempfile.mkdtemp(),
        max_steps=args.steps,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        learning_rate=3e-3,
        warmup_steps=20,
        weight_decay=0.01,
        max_grad_norm=1.0,
        lr_scheduler_type="cosine",
        logging_steps=25,
        eval_strategy="steps",
        eval_steps=150,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=CountingDataset(4000, seed=0),
        eval_dataset=CountingDataset(256, seed=1),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    metrics = trainer.evaluate()
    print(metrics)
    trainer.save_model()


if __name__ == "__main__":
    main()
