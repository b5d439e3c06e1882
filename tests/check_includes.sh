#!/bin/bash
# Fails on an include in llmc/ that points to a higher folder, and prints it. A folder may include itself and
# the folders below it in this list.
set -euo pipefail
cd "$(dirname "$0")/.."
levels=(text_run plan run program files generate model layers gemm measure launchpad cpu prepare data distributed base os)
bad=0
above=(data dev tests)
for level in "${levels[@]}"; do
    if grep -rnE "#include \"($(IFS='|'; echo "${above[*]}"))/" "llmc/$level"; then bad=1; fi
    above+=("llmc/$level")
done
for folder in llmc/*/; do
    name=$(basename "$folder")
    if [[ " ${levels[*]} " != *" $name "* ]]; then
        echo "$folder is not in the list of levels in $0"
        bad=1
    fi
    files=$(find "$folder" -type f | wc -l)
    if [ "$files" -gt 30 ]; then echo "$folder holds $files files, more than 30"; bad=1; fi
done
[ $bad = 0 ] && echo "includes: no folder of llmc/ includes a higher one"
exit $bad
