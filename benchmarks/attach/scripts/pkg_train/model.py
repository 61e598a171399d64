import torch
import torch.nn as nn
import torch.nn.functional as F


class TextCNN(nn.Module):
    """Convolutions of several widths over word embeddings, max over time."""

    def __init__(self, vocab_size, embed_dim=24, num_filters=16, widths=(2, 3), num_classes=2, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        self.convs = nn.ModuleList([nn.Conv1d(embed_dim, num_filters, w) for w in widths])
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(num_filters * len(widths), num_classes)

    def forward(self, tokens):
        x = self.embedding(tokens).transpose(1, 2)
        x = torch.cat([F.relu(conv(x)).amax(dim=2) for conv in self.convs], dim=1)
        return self.fc(self.dropout(x))
