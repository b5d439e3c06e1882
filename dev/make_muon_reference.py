#!/usr/bin/env python3
r"""Writes tests/reference/muon.bin: ten steps of torch.optim.Muon on small matrices, for muon_test.

    dev/make_muon_reference.py --out tests/reference/muon.bin
    dev/make_muon_reference.py --check tests/reference/muon.bin

The second command recomputes the file and fails if it differs by more than rounding. Needs PyTorch 2.9 or
newer, which has torch.optim.Muon; a CPU suffices.

torch.optim.Muon runs its Newton-Schulz steps in bfloat16, whose rounding errors would hide a mistake. Here
they run in float64, as everything else does: orthogonalize() below, the formula published at
https://kellerjordan.github.io/posts/muon/, takes their place. Momentum, learning rate, weight decay and
their order remain PyTorch's.

The file holds little-endian 4-byte values: the numbers of matrices and of steps (integers), momentum and
weight decay (floats), the learning rate of each step; then for each matrix its rows and columns (integers),
its elements before the first step, for each step the gradient and the elements after it, and at last the
momentum buffer.
"""
import argparse
import math
import struct
import sys
from pathlib import Path

try:
    import torch
    from torch.optim import _muon
except ImportError as error:
    sys.exit(f"make_muon_reference.py: {error}; install PyTorch 2.9 or newer")

SHAPES = [(12, 20), (20, 12), (9, 9), (1, 7), (7, 1)]
STEPS, MOMENTUM, WEIGHT_DECAY = 10, 0.95, 0.1
COEFFICIENTS, EPS, ITERATIONS = (3.4445, -4.7750, 2.0315), 1e-7, 5


def orthogonalize(update, coefficients, steps, eps):
    """In float64, in place of PyTorch's bfloat16 version, which has the same arguments."""
    a, b, c = coefficients
    x = update.double() / max(update.double().norm().item(), eps)
    if x.shape[0] > x.shape[1]:
        return orthogonalize(update.T, coefficients, steps, eps).T
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def learning_rate(step):
    return 0.02 * (1 - step / 20)


def as_stored(values):
    return torch.tensor(values, dtype=torch.float32).double()


def run(shape, generator):
    """The values that the file holds for a matrix, after its shape."""
    start = as_stored((0.1 * torch.randn(shape, generator=generator, dtype=torch.float64)).tolist())
    parameter = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Muon(
        [parameter], lr=0, weight_decay=WEIGHT_DECAY, momentum=MOMENTUM, nesterov=True,
        ns_coefficients=COEFFICIENTS, eps=EPS, ns_steps=ITERATIONS, adjust_lr_fn="match_rms_adamw")
    values = start.flatten().tolist()
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = learning_rate(step)
        size = 10.0 ** -(step % 4)  # the update must not depend on it, but the momentum does
        gradient = as_stored((size * torch.randn(shape, generator=generator, dtype=torch.float64)).tolist())
        parameter.grad = gradient
        optimizer.step()
        values += gradient.flatten().tolist() + parameter.detach().flatten().tolist()
    return values + optimizer.state[parameter]["momentum_buffer"].flatten().tolist()


def make():
    _muon._zeropower_via_newtonschulz = orthogonalize
    generator = torch.Generator().manual_seed(1)
    data = struct.pack("<2i2f", len(SHAPES), STEPS, MOMENTUM, WEIGHT_DECAY)
    data += struct.pack(f"<{STEPS}f", *[learning_rate(step) for step in range(STEPS)])
    for shape in SHAPES:
        values = run(shape, generator)
        data += struct.pack(f"<2i{len(values)}f", *shape, *values)
    return data


def check(path):
    made, found = make(), Path(path).read_bytes()
    if len(made) != len(found):
        sys.exit(f"make_muon_reference.py: {path} has {len(found)} bytes, expected {len(made)}")
    for offset in range(0, len(made), 4):
        if made[offset:offset + 4] == found[offset:offset + 4]:
            continue
        want, got = (struct.unpack_from("<f", data, offset)[0] for data in (made, found))
        if not math.isclose(want, got, rel_tol=1e-5, abs_tol=1e-7):
            sys.exit(f"make_muon_reference.py: {path} has {got} at byte {offset}, expected {want}")
    print(f"{path} agrees with PyTorch {torch.__version__}")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
action = parser.add_mutually_exclusive_group(required=True)
action.add_argument("--out", help="file to write")
action.add_argument("--check", help="file to compare")
arguments = parser.parse_args()
if arguments.check:
    check(arguments.check)
else:
    begins, out = struct.pack("<2i", len(SHAPES), STEPS), Path(arguments.out)
    if out.is_file() and out.read_bytes()[:len(begins)] not in (b"", begins):
        sys.exit(f"make_muon_reference.py: {arguments.out!r} is not a file of this script: move it")
    out.write_bytes(make())
