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

# Name for with-device, device, and for Intel the number of vector engines of an Xe core
DEVICES = [
    ("navi21", "RX 6800 (RDNA 2)", 0),
    ("navi31", "RX 7900 (RDNA 3)", 0),
    ("gfx1201", "RX 9070 (RDNA 4)", 0),
    ("dg2", "Arc A770 (Alchemist)", 16),
    ("lnl", "Lunar Lake", 8),
    ("bmg", "Arc B580 (Battlemage)", 8),
]
THREADS_PER_ENGINE = 8
SHARED_BYTES_PER_CORE = 128 * 1024

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
    for name, device, engines in DEVICES:
        text += f"\n## {device}: `{name}`\n\n" + table(rows_of(name, folder), engines)
    print(text, end="")


main()
