#!/usr/bin/env python3
r"""Writes reference results of a GPT-2 model, computed by PyTorch, in llm.c's formats, for test_gpt2.

    dev/make_reference.py --layers 3 --heads 3 --channels 48 --max-seq-len 96 --vocab 300 --random-all \
        --out odd48
    dev/make_reference.py --descriptor d12 --out d12
    dev/make_reference.py --check MODEL.bin STATE.bin [--losses LOSSES.txt]

The first two commands write:
    NAME.bin                  checkpoint, version 3
    NAME_debug_state.bin      tokens, targets, logits, loss and gradients, computed in float32
    NAME_debug_state_f64.bin  the same, computed in float64 and rounded to float32
    NAME_losses.txt           step, float32 loss and float64 loss before each of ten AdamW updates
The updates, all on that batch, use the settings of llm.c's test_gpt2: learning rate 1e-4, betas 0.9 and
0.999, eps 1e-8, weight decay 0.01 on every tensor. The third command recomputes a pair of files in float64
and fails if they differ. Needs PyTorch 1.13 or newer with numpy; a CPU suffices. With Debian's python3-torch
also install libopenblas0: the default BLAS takes many minutes for d12.
"""
import argparse
import math
import re
import sys
from pathlib import Path

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"make_reference.py: {error}; install PyTorch (Debian, Ubuntu: apt-get install python3-torch)")

MODEL_MAGIC, STATE_MAGIC = 20240326, 20240327
NAMES = ("wte wpe ln1w ln1b qkvw qkvb attprojw attprojb ln2w ln2b fcw fcb fcprojw fcprojb lnfw lnfb").split()


def fail(message):
    sys.exit("make_reference.py: " + message)


def tensor_shapes(config):
    """The shape of each of llm.c's 16 tensors, in the order of its files."""
    L, C = config["layers"], config["channels"]
    shapes = [(config["padded_vocab"], C), (config["max_seq_len"], C),
              (L, C), (L, C), (L, 3 * C, C), (L, 3 * C), (L, C, C), (L, C),
              (L, C), (L, C), (L, 4 * C, C), (L, 4 * C), (L, C, 4 * C), (L, C), (C,), (C,)]
    return dict(zip(NAMES, shapes))


def draw_parameters(config, seed, random_all):
    """Draws GPT-2's initial parameters in PyTorch's order. random_all: biases and LayerNorm weights, too."""
    generator = torch.Generator().manual_seed(seed)
    shapes = tensor_shapes(config)
    params = {name: torch.zeros(shape) for name, shape in shapes.items()}

    def draw(tensor, std, mean=0.0):
        tensor.normal_(mean, std, generator=generator)

    draw(params["wte"][:config["vocab"]], 0.02)
    draw(params["wpe"], 0.02)
    residual_std = 0.02 / math.sqrt(2 * config["layers"])
    for layer in range(config["layers"]):
        for name in ("qkvw", "attprojw", "fcw", "fcprojw"):
            draw(params[name][layer], residual_std if name.endswith("projw") else 0.02)
    for name in NAMES:
        if name.startswith("ln") and name.endswith("w"):
            params[name].fill_(1.0)
    if random_all:  # makes attention far from uniform, and every bias and LayerNorm weight matter
        for name in NAMES:
            if name.endswith("b"):
                draw(params[name], 0.1)
            elif name.startswith("ln"):
                draw(params[name], 0.2, 1.0)
            else:
                params[name] *= 5 * math.sqrt(min(1, 48 / config["channels"]))  # sums as large at any width
    return params


def forward(params, config, tokens):
    """The logits (B, T, V) of tokens (B, T)."""
    B, T = tokens.shape
    C, NH = config["channels"], config["heads"]
    wte = params["wte"][:config["vocab"]]
    residual = wte[tokens] + params["wpe"][:T]
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    for layer in range(config["layers"]):
        p = {name: params[name][layer] for name in NAMES[2:14]}
        x = F.layer_norm(residual, (C,), p["ln1w"], p["ln1b"], 1e-5)
        q, k, v = F.linear(x, p["qkvw"], p["qkvb"]).view(B, T, 3, NH, C // NH).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1) / math.sqrt(C // NH)).masked_fill(hidden, -math.inf)
        x = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C)
        residual = residual + F.linear(x, p["attprojw"], p["attprojb"])
        x = F.layer_norm(residual, (C,), p["ln2w"], p["ln2b"], 1e-5)
        x = F.gelu(F.linear(x, p["fcw"], p["fcb"]), approximate="tanh")
        residual = residual + F.linear(x, p["fcprojw"], p["fcprojb"])
    x = F.layer_norm(residual, (C,), params["lnfw"], params["lnfb"], 1e-5)
    return x @ wte.t()


def compute(params, config, inputs, targets, dtype):
    """Logits, loss and gradients of the first of ten training steps in dtype, and the losses of all ten."""
    params = {name: value.to(dtype, copy=True).requires_grad_() for name, value in params.items()}
    optimizer = torch.optim.AdamW(params.values(), lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses, first = [], None
    for _ in range(10):
        logits = forward(params, config, inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if first is None:
            gradients = {name: value.grad.clone() for name, value in params.items()}
            first = logits.detach(), loss.item(), gradients
        optimizer.step()
    return *first, losses


def header(*values):
    ints = np.zeros(256, "<i4")
    ints[:len(values)] = values
    return ints.tobytes()


def floats(tensor):
    return tensor.detach().float().contiguous().numpy().astype("<f4").tobytes()


def write_model(path, params, config):
    with open(path, "wb") as file:
        file.write(header(MODEL_MAGIC, 3, config["max_seq_len"], config["vocab"], config["layers"],
                          config["heads"], config["channels"], config["padded_vocab"]))
        for name in NAMES:
            file.write(floats(params[name]))


def write_state(path, inputs, targets, logits, loss, gradients):
    with open(path, "wb") as file:
        file.write(header(STATE_MAGIC, 2, *inputs.shape))
        file.write(inputs.numpy().astype("<i4").tobytes())
        file.write(targets.numpy().astype("<i4").tobytes())
        file.write(floats(logits))
        file.write(np.array([loss], "<f4").tobytes())
        for name in NAMES:
            file.write(floats(gradients[name]))


def check_output(path, start):
    """Refuses to replace a file that this script has not written."""
    if Path(path).exists() and Path(path).read_bytes()[:len(start)] not in (b"", start):
        fail(f"{path!r} is there, and this script has not written it: move it")


def make(arguments, config):
    B, T = arguments.batch, arguments.seq
    check_output(arguments.out + ".bin", header(MODEL_MAGIC)[:4])
    for suffix in ("", "_f64"):
        check_output(f"{arguments.out}_debug_state{suffix}.bin", header(STATE_MAGIC)[:4])
    check_output(arguments.out + "_losses.txt", b"# ")
    params = draw_parameters(config, arguments.seed, arguments.random_all)
    generator = torch.Generator().manual_seed(arguments.seed + 1)
    tokens = torch.randint(config["vocab"], (B * T + 1,), generator=generator)
    inputs, targets = tokens[:-1].view(B, T), tokens[1:].view(B, T)
    write_model(arguments.out + ".bin", params, config)
    losses = []
    for dtype, suffix in ((torch.float32, ""), (torch.float64, "_f64")):
        logits, loss, gradients, steps = compute(params, config, inputs, targets, dtype)
        write_state(f"{arguments.out}_debug_state{suffix}.bin", inputs, targets, logits, loss, gradients)
        losses.append(steps)
    with open(arguments.out + "_losses.txt", "w") as file:
        file.write(f"# {Path(arguments.out).name}: mean loss before each AdamW update; "
                   "lr 0.0001 betas 0.9 0.999 eps 1e-08 weight_decay 0.01 on every tensor\n"
                   "# step float32 float64\n")
        for step, pair in enumerate(zip(*losses)):
            file.write("%d %.9f %.12f\n" % (step, *pair))
    print(f"{arguments.out}: {sum(p.numel() for p in params.values())} parameters, losses "
          f"{losses[1][0]:.6f} to {losses[1][-1]:.6f}")


def read_ints(path, magic, version):
    if not Path(path).is_file():
        fail(f"{path} does not exist")
    data = np.fromfile(path, "<u1")
    ints = data[:1024].view("<i4") if data.size >= 1024 else np.zeros(2, "<i4")
    if ints[0] != magic or ints[1] != version:
        fail(f"{path} has magic number {ints[0]}, version {ints[1]}; expected {magic}, version {version}")
    if data.size % 4 != 0:
        fail(f"{path} is truncated")
    return ints, data[1024:].view("<i4")


def take_tensors(path, values, config):
    params, at = {}, 0
    for name, shape in tensor_shapes(config).items():
        count = math.prod(shape)
        params[name] = torch.from_numpy(values[at:at + count].astype("f4")).view(shape)
        at += count
    if at != values.size:
        fail(f"{path} has {values.size} values instead of {at}")
    return params


def relative_l2(value, expected):
    value, expected = value.double().flatten(), expected.double().flatten()
    return ((value - expected).norm() / expected.norm().clamp_min(1e-30)).item()


def check(model_path, state_path, losses_path, limit):
    ints, values = read_ints(model_path, MODEL_MAGIC, 3)
    keys = ("max_seq_len", "vocab", "layers", "heads", "channels", "padded_vocab")
    config = dict(zip(keys, map(int, ints[2:8])))
    check_config(config)
    params = take_tensors(model_path, values.view("<f4"), config)
    ints, values = read_ints(state_path, STATE_MAGIC, 2)
    B, T, V = int(ints[2]), int(ints[3]), config["vocab"]
    if B < 1 or not 1 <= T <= config["max_seq_len"] or values.size < 2 * B * T + B * T * V + 1:
        fail(f"{state_path} is truncated or belongs to another model")
    tokens = torch.from_numpy(values[:2 * B * T].astype("i8")).view(2, B, T)
    if tokens.min() < 0 or tokens.max() >= V:
        fail(f"{state_path} has tokens outside the model's vocabulary of {V}")
    rest = values[2 * B * T:].view("<f4")
    logits, loss, gradients, losses = compute(params, config, tokens[0], tokens[1], torch.float64)
    expected = take_tensors(state_path, rest[B * T * V + 1:], config)
    errors = {"logits": relative_l2(logits, torch.from_numpy(rest[:B * T * V].copy())),
              "loss": abs(loss / float(rest[B * T * V]) - 1)}
    errors.update({"d" + name: relative_l2(gradients[name], expected[name]) for name in NAMES})
    if losses_path:
        if not Path(losses_path).is_file():
            fail(f"{losses_path} does not exist")
        for line in Path(losses_path).read_text().splitlines():
            if line.startswith("#"):
                continue
            step, _, in_float64 = line.split()
            errors["loss " + step] = abs(losses[int(step)] / float(in_float64) - 1)
    for name, error in errors.items():
        print(f"{name:10s} {error:.2e}{'' if error <= limit else '  TOO LARGE'}")
    if not all(error <= limit for error in errors.values()):
        fail(f"{state_path} differs from PyTorch's results by more than {limit:.0e}")


def check_config(config):
    if min(config.values()) < 1:
        fail("every size must be at least 1")
    if config["channels"] % config["heads"] != 0:
        fail(f"channels ({config['channels']}) must be a multiple of heads ({config['heads']})")
    if config["padded_vocab"] < config["vocab"]:
        fail("the padded vocabulary is smaller than the vocabulary")


def apply_descriptor(arguments):
    """Sets the sizes of gpt2:dN or gpt3:cN, read from the library's table of them."""
    table = (Path(__file__).resolve().parent.parent / "llmc/model/model_config.cpp").read_text()
    shapes = dict(re.findall(r'\{"(gpt\d:\w+)", ([\d, ]+)\}', table))
    name = "gpt2:" + arguments.descriptor if arguments.descriptor.startswith("d") else arguments.descriptor
    if name not in shapes:
        fail(f"unknown descriptor '{arguments.descriptor}'; known: {', '.join(shapes)}")
    sizes = map(int, shapes[name].split(","))
    arguments.max_seq_len, arguments.layers, arguments.heads, arguments.channels = sizes
    arguments.vocab = 50257


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 2), ("heads", 2), ("channels", 32), ("max-seq-len", 64), ("vocab", 300),
                          ("batch", 4), ("seq", None), ("seed", 42)):
        text = f"default {default}" if default else "default: 64, or max-seq-len if that is less"
        parser.add_argument("--" + name, type=int, default=default, metavar="N", help=text)
    parser.add_argument("--descriptor", metavar="NAME",
                        help="d12, gpt3:c768, ...: sets the five sizes of the model")
    parser.add_argument("--random-all", action="store_true",
                        help="random biases and LayerNorm weights, larger matrices")
    parser.add_argument("--out", metavar="NAME", help="path and name of the four files, without extension")
    parser.add_argument("--check", nargs=2, metavar=("MODEL.bin", "STATE.bin"))
    parser.add_argument("--losses", metavar="FILE", help="with --check: also compare the ten losses")
    parser.add_argument("--limit", type=float, default=1e-5, help="with --check: largest relative difference")
    arguments = parser.parse_args()
    if arguments.check:
        check(*arguments.check, arguments.losses, arguments.limit)
        return
    if not arguments.out:
        fail("give --out NAME or --check MODEL.bin STATE.bin")
    if arguments.descriptor:
        apply_descriptor(arguments)
    arguments.seq = arguments.seq or min(64, arguments.max_seq_len)
    config = {"max_seq_len": arguments.max_seq_len, "vocab": arguments.vocab, "layers": arguments.layers,
              "heads": arguments.heads, "channels": arguments.channels,
              "padded_vocab": (arguments.vocab + 127) // 128 * 128}
    check_config(config)
    if not (1 <= arguments.seq <= arguments.max_seq_len and arguments.batch >= 1):
        fail(f"--seq must be from 1 to {arguments.max_seq_len}, --batch at least 1")
    make(arguments, config)


try:
    main()
except OSError as error:
    fail(str(error))
