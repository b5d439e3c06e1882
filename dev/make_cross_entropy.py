#!/usr/bin/env python3
"""Prints PyTorch's cross_entropy with ignore_index, for classifier_test: shape, targets, the loss of each
row, and the gradients of the mean over the rows that count. It makes tests/reference/cross_entropy.txt."""
import torch

for rows, V in [(3, 5), (5, 17), (7, 33), (2, 1)]:
    numbers = torch.arange(rows * V).reshape(rows, V)
    logits = ((numbers * 7919 % 1000) / 125 - 4).requires_grad_()
    targets = torch.tensor([-1 if row % 3 == 1 else (row * 11 + V - 1) % V for row in range(rows)])
    losses = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1, reduction="none")
    torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1).backward()
    print(rows, V, *targets.tolist())
    for values in (losses, *logits.grad):
        print(*("%.9g" % value for value in values.tolist()))
