#!/bin/bash
# Runs the tests of the Windows programs (cmake --preset windows) under Wine: dev/windows_tests.sh
# CTEST-OPTIONS. `dev/windows_tests.sh -- PROGRAM ARGS` runs a Windows program there.
# Wine's Vulkan needs a display when wineserver starts, so this starts both and ends them.
set -euo pipefail
cd "$(dirname "$0")/.."
export WINEPREFIX=${WINEPREFIX:-$PWD/build-windows/wine} WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml='
display=$(mktemp)
Xvfb -displayfd 3 -screen 0 640x480x16 3>"$display" 2>/dev/null &
server=$!
trap '/usr/lib/wine/wineserver64 -k || true; kill $server; rm -f "$display"' EXIT
until [ -s "$display" ]; do
    kill -0 $server || { echo "windows_tests.sh: Xvfb does not start" >&2; exit 1; }
    sleep 0.1
done
DISPLAY=:$(cat "$display")
export DISPLAY
/usr/lib/wine/wine64 wineboot -i 2>/dev/null
# The desktop, which Wine's Vulkan would start, and which would keep the output of its first user open.
/usr/lib/wine/wine64 explorer /desktop >/dev/null 2>&1 </dev/null &
if [ "${1:-}" = -- ]; then
    shift
    /usr/lib/wine/wine64 "$@"
else
    # busy machines: now and then Wine fails to start a program, with "Internal error"
    ctest --preset windows --repeat until-pass:3 "$@"
fi
