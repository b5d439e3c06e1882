#!/usr/bin/env python3
"""Prints what the compilers of devices that are not there report about each kernel that training and sampling
take, as Markdown. Needs dev/setup.sh vendor-compilers and build/compile_kernels.

    dev/device_tables.py           compiles d12 for each device and prints the tables; takes two minutes
    dev/device_tables.py FOLDER    takes FOLDER/DEVICE.csv of compile_kernels --default-only --csv instead
"""
import csv
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent

# Name for with-device, device, for Intel the number of vector engines of an Xe core, and the published fp32
# peak in TFLOP/s of the card that a prediction is for (AMD's without dual issue)
DEVICES = [
    ("navi21", "RX 6800 (RDNA 2)", 0, ("RX 6800 XT", 20.7)),
    ("navi31", "RX 7900 (RDNA 3)", 0, ("RX 7900 XTX", 30.7)),
    ("gfx1201", "RX 9070 (RDNA 4)", 0, ("RX 9070 XT", 24.4)),
    ("dg2", "Arc A770 (Alchemist)", 16, ("Arc A770", 19.7)),
    ("lnl", "Lunar Lake", 8, None),
    ("bmg", "Arc B580 (Battlemage)", 8, ("Arc B580", 13.7)),
]
THREADS_PER_ENGINE = 8
SHARED_BYTES_PER_CORE = 128 * 1024

# An H200 at d12, T=1024, fp32 (SPEED.md), by kernel: GFLOP per token, the share of its fp32 peak, and the
# subgroups of 32 on each of the four SIMD units of an SM. Shared memory lets three (GEMM) and two (attention)
# workgroups of four subgroups share an SM.
H200 = {
    "matmul3": (0.741, 0.61, 3),
    "attention_forward2": (0.019, 0.33, 2),
    "attention_backward2_dq": (0.028, 0.33, 2),
    "attention_backward2_dkv": (0.038, 0.35, 2),
}
H200_OTHER_KERNELS = 0.03  # of a step
SIMD_LANES = 32  # of an H200 and of RDNA; an Xe core's engines have 8 or 16
UNKNOWN_DEVICE = 0.5  # how much of the H200's share kernels tuned for an H200 are assumed to reach

INTRODUCTION = """\
# What compilers report, by device

The kernels that training and sampling of d12 take in fp32, bf16 and fp16, compiled by Mesa's drivers, not
run. docs/devices.md explains.

A line stands for all variants of a kernel: specialization constants and precisions. It has the most
registers, spills and milliseconds of any variant, and the lowest occupancy. Occupancy counts subgroups per
SIMD unit, at most 16 (AMD), or threads per vector engine, at most 8 (Intel). AMD's driver reports it. Intel's
is computed from the workgroup size and shared memory, of which an Xe core is taken to have 128 KiB.
Registers are as the drivers count them: AMD's are VGPRs; Intel's are the most that live at a time, in units
of 32 bytes per thread, of which there are 128 (dg2) or 256 (lnl, bmg).

Predictions count the subgroups of whole workgroups, per 32 lanes and in subgroups of 32. The workgroups share
128 lanes: four SIMD units of an AMD workgroup processor, an Xe core of Intel, or an SM of an H200.
"""


def rows_of(device, folder):
    if folder:
        return list(csv.DictReader((folder / f"{device}.csv").open()))
    program = [TOP / ".tools/bin/with-device", device, TOP / "build/compile_kernels"]
    command = [*program, "--default-only", "--csv"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return list(csv.DictReader(result.stdout.splitlines()))


def occupancy(row, engines):
    """As the driver reports it, or for a number of vector engines of an Xe core."""
    if row["occupancy"] != "-":
        return int(row["occupancy"])
    block, shared = int(row["constants"].split(",")[0]), int(row["shared_bytes"])
    threads = -(-block // int(row["subgroup"]))
    groups = THREADS_PER_ENGINE * engines // threads
    if shared:
        groups = min(groups, SHARED_BYTES_PER_CORE // shared)
    return groups * threads // engines


def resident(row, engines):
    """Subgroups of 32 that run per 32 lanes, of whole workgroups only."""
    block, subgroup = int(row["constants"].split(",")[0]), int(row["subgroup"])
    units, lanes = (engines, 128 // engines) if engines else (4, SIMD_LANES)
    per_group = -(-block // subgroup)
    groups = occupancy(row, engines) * units // per_group
    return groups * per_group * subgroup / (units * lanes)


def prediction(rows, engines, card):
    """The time of GEMMs and attention by their occupancy; all other kernels have their share of a step."""
    name, peak = card
    lines = [f"Prediction for the {name}, d12 in fp32, published peak {peak} TFLOP/s:", ""]
    lines += ["| kernel | subgroups of whole workgroups | on an H200 | share of peak |", "|---|---|---|---|"]
    seconds = 0
    for kernel, (gflop, share, enough) in H200.items():
        waves = min(resident(r, engines) for r in rows if r["kernel"] == kernel + "_fp32")
        reached = share * UNKNOWN_DEVICE * min(1, waves / enough)
        seconds += gflop / (1000 * peak * reached) / (1 - H200_OTHER_KERNELS)
        lines.append(f"| {kernel} | {waves:.3g} | {enough} | {100 * reached:.0f} % |")
    low, middle, high = (round(f / seconds, -2) for f in (0.5, 1, 2))
    lines += ["", f"{middle:,.0f} tokens/s; anything from {low:,.0f} to {high:,.0f} would be no surprise."]
    return "\n".join(lines) + "\n"


def table(rows, engines):
    kernels = {}
    for row in rows:
        kernels.setdefault(row["kernel"].rsplit("_", 1)[0], []).append(row)
    lines = ["| kernel | variants | registers | spills | occupancy | slowest, ms |"]
    lines.append("|---" * 6 + "|")
    for name, variants in sorted(kernels.items()):
        most = [max(int(v[column]) for v in variants) for column in ("registers", "spills", "compile_ms")]
        lowest = min(occupancy(v, engines) for v in variants)
        lines.append(f"| {name} | {len(variants)} | {most[0]} | {most[1]} | {lowest} | {most[2]} |")
    return "\n".join(lines) + "\n"


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    text = INTRODUCTION
    for name, device, engines, card in DEVICES:
        rows = rows_of(name, folder)
        text += f"\n## {device}: `{name}`\n\n" + table(rows, engines)
        if card:
            text += "\n" + prediction(rows, engines, card)
    print(text, end="")


main()
