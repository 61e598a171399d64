"""Node classification by a graph convolutional network, full batch, on a made-up citation graph."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", "--epochs", type=int, default=200, help="Number of epochs to train.")
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--weight_decay", type=float, default=5e-4)
parser.add_argument("--hidden", type=int, default=16)
parser.add_argument("--dropout", type=float, default=0.5)
args = parser.parse_args()
torch.manual_seed(args.seed)


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        support = torch.mm(x, self.weight)
        return torch.sparse.mm(adj, support) + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        x = self.gc2(x, adj)
        return F.log_softmax(x, dim=1)


def make_graph(n=600, classes=4, nfeat=32):
    labels = torch.randint(classes, (n,))
    same = labels[:, None] == labels[None, :]
    edges = torch.rand(n, n) < torch.where(same, 0.03, 0.004)
    edges = edges.triu(1)
    edges = edges | edges.T | torch.eye(n, dtype=torch.bool)
    degree = edges.sum(1).float()
    index = edges.nonzero().T
    values = degree[index[0]].rsqrt() * degree[index[1]].rsqrt()
    adj = torch.sparse_coo_tensor(index, values, (n, n)).coalesce()
    features = (torch.rand(n, nfeat) < 0.1).float()
    words = torch.arange(nfeat) % classes
    features += ((words[None, :] == labels[:, None]) & (torch.rand(n, nfeat) < 0.15)).float()
    features = features.clamp(max=1)
    return adj, features / features.sum(1, keepdim=True).clamp(min=1), labels


adj, features, labels = make_graph()
idx_train, idx_val, idx_test = range(200), range(200, 400), range(400, 600)

model = GCN(nfeat=features.shape[1], nhid=args.hidden, nclass=4, dropout=args.dropout)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)


def accuracy(output, labels):
    return (output.argmax(1) == labels).float().mean().item()


def train(epoch):
    t = time.time()
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()
    if epoch % 20 == 0:
        model.eval()
        with torch.no_grad():
            output = model(features, adj)
        loss_val = F.nll_loss(output[idx_val], labels[idx_val])
        acc_val = accuracy(output[idx_val], labels[idx_val])
        print(
            f"Epoch: {epoch:04d} loss_train: {loss_train.item():.4f} loss_val: {loss_val.item():.4f} "
            f"acc_val: {acc_val:.4f} time: {time.time() - t:.4f}s"
        )


for epoch in range(args.steps):
    train(epoch)
model.eval()
with torch.no_grad():
    output = model(features, adj)
print(
    f"Test set results: loss= {F.nll_loss(output[idx_test], labels[idx_test]):.4f} acc= {accuracy(output[idx_test], labels[idx_test]):.4f}"
)
