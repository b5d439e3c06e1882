#!/bin/bash
# Runs tests of the Windows programs (cmake --preset windows) under Wine: dev/windows_tests.sh CTEST-OPTIONS.
# Wine's Vulkan needs a display when wineserver starts, so this starts both and ends them.
set -euo pipefail
cd "$(dirname "$0")/.."
export WINEPREFIX=$PWD/build-windows/wine WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml='
display=$(mktemp)
Xvfb -displayfd 3 -screen 0 640x480x16 3>"$display" 2>/dev/null &
server=$!
trap '/usr/lib/wine/wineserver64 -k || true; kill $server; rm -f "$display"' EXIT
until [ -s "$display" ]; do sleep 0.1; done
DISPLAY=:$(cat "$display")
export DISPLAY
/usr/lib/wine/wine64 wineboot -i 2>/dev/null
ctest --preset windows "$@"
