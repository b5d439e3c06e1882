#!/bin/bash
# Draws the training and validation loss of a run's main.log, with gnuplot. Run as:
#   dev/plot_loss.sh [--floor NATS] FOLDER [PICTURE.svg|PICTURE.png]
# FOLDER holds main.log (lines "s:STEP trl:LOSS ..." and "s:STEP tel:LOSS"); the picture is FOLDER/loss.svg unless
# named. --floor draws a line at the entropy of the corpus and prints how far the last validation loss is from it.
set -euo pipefail
die() { echo "plot_loss.sh: $*" >&2; exit 1; }

floor=''
if [ "${1:-}" = --floor ]; then
    [[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$ ]] || die "--floor needs a number, not '${2:-}'"
    floor=$2
    shift 2
fi
[ $# = 1 ] || [ $# = 2 ] || die "usage: dev/plot_loss.sh [--floor NATS] FOLDER [PICTURE.svg|PICTURE.png]"
log=$1/main.log
picture=${2:-$1/loss.svg}
[ -r "$log" ] || die "no readable $log"
command -v gnuplot >/dev/null || die "gnuplot is missing: install the package gnuplot-nox"
case $picture in
    *.svg) terminal='svg size 900,540 dynamic background "white" font "sans,14"' ;;
    *.png) terminal='pngcairo size 900,540 font "sans,12"' ;;
    *) die "$picture: the name must end in .svg or .png" ;;
esac

# column NAME: "step value" for each line that has NAME:value with a finite value
column() {
    sed -n "s/^s:\([0-9]*\) .*\b$1:\(-\?[0-9.][0-9.eE+-]*\).*/\1 \2/p" "$log"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
column trl >"$work/train"
column tel >"$work/val"
[ -s "$work/train" ] || [ -s "$work/val" ] || die "$log holds no losses"

plots=()
if [ -s "$work/train" ]; then
    plots+=("'$work/train' with lines lw 1 lc rgb '#7aa6d8' title 'training'")
fi
if [ -s "$work/val" ]; then
    plots+=("'$work/val' with linespoints lw 2 pt 7 ps 0.5 lc rgb '#c0392b' title 'validation'")
fi
if [ -n "$floor" ]; then
    plots+=("$floor with lines lw 2 dt 2 lc rgb '#444444' title 'entropy of the corpus: $(printf %.4f "$floor")'")
fi
(
    IFS=,
    gnuplot <<END
set terminal $terminal
set output '$work/picture'
set xlabel 'step'
set ylabel 'loss (nats per token)'
set xrange [0:*]
set logscale y
set ytics (0.01,0.02,0.05,0.1,0.15,0.2,0.3,0.5,0.7,1,1.5,2,3,4,5,7,10)
set grid lt 1 lc rgb '#dddddd'
set border 3
set tics nomirror
plot ${plots[*]}
END
)
mv "$work/picture" "$picture"
if [ -n "$floor" ] && [ -s "$work/val" ]; then
    tail -n 1 "$work/val" | awk -v floor="$floor" \
        '{ printf "validation loss %.4f, entropy of the corpus %.4f: %.4f nats per token left\n", $2, floor, $2 - floor }'
fi
echo "loss plot: $picture"
