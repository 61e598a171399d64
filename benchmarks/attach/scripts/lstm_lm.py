"""A word language model: LSTM, truncated backpropagation with the hidden state carried over, batches as (time, batch)."""

import argparse
import math
import os
import random
import tempfile

import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description="RNN language model")
parser.add_argument("--emsize", type=int, default=32)
parser.add_argument("--nhid", type=int, default=48)
parser.add_argument("--nlayers", type=int, default=1)
parser.add_argument("--lr", type=float, default=5.0)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch_size", type=int, default=20, metavar="N")
parser.add_argument("--bptt", type=int, default=16)
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=1111)
parser.add_argument("--log-interval", type=int, default=25)
parser.add_argument("--save", type=str, default=None, help="path to save the final model")
args = parser.parse_args()
torch.manual_seed(args.seed)


class Corpus:
    def __init__(self, seed=0):
        rng = random.Random(seed)
        who = ["i", "you", "she", "they"]
        verbs = {"eat": ["bread", "rice", "soup"], "read": ["books", "letters"], "drive": ["cars", "trucks"], "sing": ["songs"]}
        ends = [["today"], ["every", "day"], ["in", "the", "morning"], []]
        tokens = []
        for _ in range(5000):
            verb = rng.choice(list(verbs))
            tokens += [rng.choice(who), verb, rng.choice(verbs[verb]), *rng.choice(ends), "<eos>"]
        self.idx2word = sorted(set(tokens))
        word2idx = {w: i for i, w in enumerate(self.idx2word)}
        ids = torch.tensor([word2idx[w] for w in tokens])
        cut = int(0.9 * len(ids))
        self.train, self.valid = ids[:cut], ids[cut:]


def batchify(data, bsz):
    rows = len(data) // bsz
    return data[: rows * bsz].reshape(bsz, rows).T.contiguous()


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout):
        super().__init__()
        self.ntoken, self.nhid, self.nlayers = ntoken, nhid, nlayers
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers)
        self.decoder = nn.Linear(nhid, ntoken)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        return self.decoder(self.drop(output)).view(-1, self.ntoken), hidden

    def init_hidden(self, bsz):
        return tuple(torch.zeros(self.nlayers, bsz, self.nhid) for _ in "hc")


def truncate(hidden):
    """The same states, cut off from the batches before."""
    h, c = hidden
    return h.detach(), c.detach()


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)


corpus = Corpus()
ntokens = len(corpus.idx2word)
train_data, val_data = batchify(corpus.train, args.batch_size), batchify(corpus.valid, 10)
model = RNNModel(ntokens, args.emsize, args.nhid, args.nlayers, args.dropout)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)


def evaluate(data_source):
    model.eval()
    total_loss, hidden = 0.0, model.init_hidden(10)
    with torch.no_grad():
        for i in range(0, data_source.size(0) - 1, args.bptt):
            data, targets = get_batch(data_source, i)
            output, hidden = model(data, hidden)
            total_loss += len(data) * criterion(output, targets).item()
    return total_loss / (len(data_source) - 1)


step, epoch, total_loss = 0, 1, 0.0
while step < args.steps:
    model.train()
    hidden = model.init_hidden(args.batch_size)
    for i in range(0, train_data.size(0) - 1, args.bptt):
        data, targets = get_batch(train_data, i)
        hidden = truncate(hidden)
        optimizer.zero_grad()
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total_loss += loss.item()
        step += 1
        if step % args.log_interval == 0:
            cur_loss, total_loss = total_loss / args.log_interval, 0.0
            print(f"| epoch {epoch:3d} | step {step:5d} | loss {cur_loss:5.3f} | ppl {math.exp(cur_loss):8.2f}")
        if step >= args.steps:
            break
    print(f"| end of epoch {epoch:3d} | valid loss {evaluate(val_data):5.3f}")
    epoch += 1
path = args.save or os.path.join(tempfile.mkdtemp(), "model.pt")
torch.save(model.state_dict(), path)
