#!/bin/bash
# Fails on an include in llmc/ that points to a higher folder, and prints it. A folder may include itself and
# the folders below it in CONTRIBUTING.md's table. A folder has at most 25 sources; a source with its header,
# and with its versions for other systems, is one. Fails, too, on a line that names a program in another way
# than command_of() does.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t levels < <(sed -nE 's/^\| `llmc\/([a-z]+)`.*/\1/p' CONTRIBUTING.md)
bad=0
above=(data dev tests)
for level in "${levels[@]}"; do
    if grep -rnE "#include \"($(IFS='|'; echo "${above[*]}"))/" "llmc/$level"; then bad=1; fi
    above+=("llmc/$level")
done
for folder in llmc/*/; do
    name=$(basename "$folder")
    if [[ " ${levels[*]} " != *" $name "* ]]; then
        echo "$folder is not in the table of CONTRIBUTING.md"
        bad=1
    fi
    sources=$(find "$folder" -type f | sed -E 's/(_posix|_windows|_cpu)?[.](cpp|h)$//' | sort -u | wc -l)
    if [ "$sources" -gt 25 ]; then echo "$folder has $sources sources, more than 25"; bad=1; fi
done
# A line that shows a command names the program as it is installed: command_of().
names='(train_gpt2|prepare_data|make_corpus)'
if grep -rnE "^[^/]*\"([^\"]*[ (])?$names[ )]|\"[^\"]*[ (]$names" llmc ./*.cpp |
    grep -vE 'model_card|// make_corpus'; then bad=1; fi
[ $bad = 0 ] && echo "includes: no folder of llmc/ includes a higher one; lines name programs as installed"
exit $bad
