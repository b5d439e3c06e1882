#!/bin/bash
# Plots the logs of one or more runs with gnuplot: training and validation loss, learning rate, gradient norm
# and tokens per second, in panels from top to bottom. Run as:
#   dev/plot.sh [--floor NATS] [--out PICTURE.svg|PICTURE.png] FOLDER...
# FOLDER contains the metrics.csv of a run, or llm.c's main.log, which has no tokens per second. The default
# picture is loss.svg in the folder or, for several, comparison.svg beside the first folder. --floor draws a
# line at the entropy of the corpus and prints the distance of the last validation loss from it.
set -euo pipefail
unset LC_ALL
export LC_NUMERIC=C  # a decimal point, whatever the language
# printable TEXT: the text on one line, without characters that act on a terminal or end a string of gnuplot's
printable() {
    printf '%s' "$*" | LC_ALL=C tr '\000-\037\177' '?' |
        LC_ALL=C sed $'s/\xc2[\x80-\x9f]/?/g; s/\xd8\x9c/?/g; s/\xe2\x80[\x8e\x8f\xa8-\xae]/?/g
            s/\xe2\x81[\xa6-\xa9]/?/g'
}
die() { printf 'plot.sh: %s\n' "$(printable "$*")" >&2; exit 1; }
usage="usage: dev/plot.sh [--floor NATS] [--out PICTURE.svg|PICTURE.png] FOLDER..."

if [[ ${1:-} = --help || ${1:-} = -h ]]; then
    sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"
    exit
fi
floor='' picture=''
while [[ ${1:-} = --* ]]; do
    case $1 in
        --floor)
            [[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$ ]] ||
                die "--floor needs a number, not '${2:-}'"
            floor=$2 ;;
        --out)
            picture=${2:-}
            [ -n "$picture" ] || die "--out needs the name of a picture" ;;
        *) die "unknown option $1; $usage" ;;
    esac
    shift 2
done
[ $# -ge 1 ] || die "$usage"
if [ -z "$picture" ]; then
    if [ $# -eq 1 ]; then picture=$1/loss.svg; else picture=$(dirname -- "$1")/comparison.svg; fi
fi
command -v gnuplot >/dev/null || die "gnuplot is missing: install the package gnuplot-nox"
case $picture in
    *.svg) terminal='svg size 900,1100 dynamic background "white" font "sans,14"' ;;
    *.png) terminal='pngcairo size 900,1100 font "sans,12"' ;;
    *) die "$picture: the name must end in .svg or .png" ;;
esac
# Refuses to destroy an input, or something that is no such picture. Devices and pipes are written to.
if [ -f "$picture" ]; then
    for folder in "$@"; do
        for log in "$folder/metrics.csv" "$folder/main.log"; do
            [ ! "$picture" -ef "$log" ] || die "$picture is an input, too, and would be lost"
        done
    done
    case $picture in
        *.svg) mark='Produced by GNUPLOT' ;;
        *.png) mark='PNG' ;;
    esac
    [ ! -s "$picture" ] || LC_ALL=C grep -qa "$mark" < <(head -c 4096 -- "$picture") ||
        die "$picture is there, and is no picture of gnuplot's: move it, or choose another --out"
elif [ -d "$picture" ]; then
    die "cannot write $picture: it is a directory"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# extract FOLDER PREFIX: writes PREFIX.train, .val, .rate, .norm and .speed, with lines "step value". Skips
# damaged lines and values that are not finite numbers.
extract() {
    local number='-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?'
    local columns=(train:2 rate:3 norm:4 speed:5 val:7) names=(train:trl rate:lr norm:norm val:tel) pair
    if [ -r "$1/metrics.csv" ]; then
        for pair in "${columns[@]}"; do
            LC_ALL=C awk -F, -v c="${pair#*:}" -v number="^$number\$" \
                '$1 ~ /^[0-9]+$/ && $c ~ number { print $1, $c }' <"$1/metrics.csv" >"$2.${pair%:*}"
        done
    elif [ -r "$1/main.log" ]; then
        : >"$2.speed"
        for pair in "${names[@]}"; do
            LC_ALL=C sed -nE "s/^s:([0-9]+) (.* )?${pair#*:}:($number)( .*)?\$/\1 \3/p" <"$1/main.log" \
                >"$2.${pair%:*}"
        done
    else
        die "no readable metrics.csv or main.log in $1"
    fi
    [ -s "$2.train" ] || [ -s "$2.val" ] || die "the logs in $1 contain no losses"
}

# curves SUFFIX STYLE TITLE: adds the curve of each run to the array plots
colours=('#2c6fbb' '#c0392b' '#27803b' '#8e44ad' '#d68910' '#117a8b' '#7f8c8d' '#000000')
curves() {
    local i
    for i in "${!runs[@]}"; do
        [ -s "$work/$i.$1" ] || continue
        plots+=("'$i.$1' with $2 lc rgb '${colours[i % ${#colours[@]}]}' title '${titles[i]}$3'")
    done
}

# tics SUFFIX: the settings of an axis from 0 to a little above the largest value, with about five tics
tics() {
    cat "$work"/*."$1" | awk '
        $2 > most { most = $2 }
        END {
            if (most <= 0) most = 1
            unit = 10 ^ int(log(most / 4) / log(10) - (most < 4))
            step = unit * (most / 4 > 5 * unit ? 10 : most / 4 > 2 * unit ? 5 : most / 4 > unit ? 2 : 1)
            printf "set yrange [0:%g]; set ytics 0,%g", 1.05 * most, step
        }'
}

# panel LABEL SETTINGS: turns the array plots into the next panel
panel() {
    [ ${#plots[@]} -gt 0 ] || return 0
    local IFS=, reset='unset logscale y; set ytics auto; set yrange [*:*]'
    panels+=("$2"$'\n'"set ylabel '$1'"$'\n'"plot ${plots[*]}"$'\n'"$reset")
    plots=()
}

# draw: all panels from top to bottom; the first one, the loss, is twice as high as the others
draw() {
    local i unit top=1 height
    unit=$(awk -v n=${#panels[@]} 'BEGIN { print 1 / (n + 1) }')
    for i in "${!panels[@]}"; do
        height=$(awk -v u="$unit" -v i="$i" 'BEGIN { print i == 0 ? 2 * u : u }')
        top=$(awk -v t="$top" -v h="$height" 'BEGIN { print t - h }')
        printf 'set size 1,%s\nset origin 0,%s\n%s\n' "$height" "$top" "${panels[i]}"
    done
}

runs=("$@") titles=() plots=() panels=()
for i in "${!runs[@]}"; do
    extract "${runs[i]}" "$work/$i"
    title=''
    if [ ${#runs[@]} -gt 1 ]; then
        title="$(printable "$(basename -- "${runs[i]}")" | tr -d "'\"{}^@&~\\\\\`" | tr _ -) "
    fi
    titles+=("$title")
done
last_step=$(cat "$work"/*.train "$work"/*.val | awk '$1 > n { n = $1 } END { print n ? n : 1 }')
curves train 'lines lw 1' training
curves val 'linespoints lw 2 pt 7 ps 0.5' validation
if [ -n "$floor" ]; then
    plots+=("$floor with lines lw 2 dt 2 lc rgb '#444444' title 'corpus entropy: $(printf %.4f "$floor")'")
fi
panel 'loss (nats per token)' 'set logscale y
set yrange [*:*] noextend
set ytics (0.01,0.02,0.05,0.1,0.15,0.2,0.3,0.4,0.5,0.6,0.7,0.8,1,1.2,1.5,2,2.5,3,3.5,4,4.5,5,6,7,8,9,10,11)'
curves rate 'lines lw 2' 'learning rate'
panel 'learning rate' "$(tics rate)"
curves norm 'lines lw 1' 'gradient norm'
panel 'gradient norm' 'set logscale y
set yrange [*:*] noextend
set ytics (0.001,0.002,0.005,0.01,0.02,0.05,0.1,0.2,0.5,1,2,5,10,20,50,100,1000)'
curves speed 'lines lw 1' 'tokens per second'
panel 'tokens per second' "$(tics speed)"
(cd "$work" && gnuplot) 2>"$work/warnings" <<END || die "gnuplot failed: $(head -1 "$work/warnings")"
set terminal $terminal
set output 'picture'
set multiplot
set xlabel 'step'
set xrange [0:$last_step] noextend
set grid lt 1 lc rgb '#dddddd'
set border 3
set tics nomirror
set lmargin 11
set key above
$(draw)
unset multiplot
END
if [ -e "$picture" ] && [ ! -f "$picture" ]; then  # a device or a pipe
    cat "$work/picture" >"$picture"
else
    rm -f -- "$picture"  # a link is replaced, not followed
    mv -- "$work/picture" "$picture"
fi
if [ -n "$floor" ] && [ -s "$work/0.val" ]; then
    tail -n 1 "$work/0.val" | awk -v floor="$floor" '{
        printf "validation loss %.4f, corpus entropy %.4f: ", $2, floor
        printf "%.4f nats per token above it\n", $2 - floor
    }'
fi
printf 'plot: %s\n' "$(printable "$picture")"
