#!/usr/bin/env bash
# Downloads llm.c's ready-made files and published models. A second run downloads only missing and incomplete
# files.
#     data/download.sh starter [DIR]        GPT-2 124M, its debug state, tokenizer, tinyshakespeare, HellaSwag
#     data/download.sh gpt2 SIZE [DIR]      Hugging Face's gpt2, gpt2-medium, gpt2-large or gpt2-xl
#     data/download.sh fineweb N [DIR]      FineWeb tokens: the validation shard, 1-1028 training shards
#     data/download.sh fineweb-edu N [DIR]  FineWeb-Edu tokens: likewise, 1-1001 shards of 200 MB each
# DIR is the target folder, data/NAME by default. BASE_URL=... downloads from another server's folder.
set -u

hub=https://huggingface.co/datasets
fail() { echo "download.sh: $*" >&2; exit 1; }

# Prints the size that the server reports, after redirects; nothing if it has no such file or does not answer.
remote_size() {
    local headers
    headers=$(curl --silent --fail --head --location --connect-timeout 20 "$1") || return
    echo "$headers" | tr -d '\r' | awk 'tolower($1) == "content-length:" { size = $2 } END { print size }'
}

local_size() { if [ -f "$1" ]; then wc -c <"$1" | tr -d ' '; else echo 0; fi; }

# prints int32 number $2 of the header of file $1
header_int() { od -A n -t d4 -j $((4 * $2)) -N 4 "$1" | tr -d ' '; }

# Checks the format of a complete file, and that a shard has the length its header says. JSON begins with a
# brace, safetensors with 8 bytes and a brace.
check_header() {
    local file=$1 name=$2 magic=$3
    if [ "$magic" = json ] || [ "$magic" = safetensors ]; then
        local at=1; [ "$magic" = json ] || at=9
        [ "$(tail -c +$at "$file" | head -c 1 | tr -d '\0')" = "{" ] ||
            { rm -f "$file"; fail "$name is not a $magic file; deleted"; }
        return
    fi
    local found; found=$(header_int "$file" 0)
    [ "$found" = "$magic" ] ||
        { rm -f "$file"; fail "$name starts with ${found:-nothing} instead of $magic; deleted"; }
    if [ "$magic" = 20240520 ]; then
        local tokens; tokens=$(header_int "$file" 2)
        [ "$(local_size "$file")" = $((1024 + 2 * tokens)) ] ||
            { rm -f "$file"; fail "$name does not fit the $tokens tokens of its header; deleted"; }
    fi
}

# Downloads NAME to DIR/NAME.part, which a later run resumes, and renames it to DIR/NAME.
fetch() {
    local name=$1 magic=$2 url=$base/$1 file=$dir/$1 part=$dir/$1.part size attempt status=0
    size=$(remote_size "$url")
    [ "${size:-0}" -gt 0 ] || fail "$name: $url gives no size; check the network and the address"
    if [ "$(local_size "$file")" = "$size" ]; then
        check_header "$file" "$name" "$magic"
        echo "$name: already there"
        return
    fi
    [ "$(local_size "$file")" -lt "$size" ] ||
        fail "$file is longer than the server's $size bytes; move or remove it"
    if [ -f "$file" ]; then mv "$file" "$part"; fi  # incomplete
    [ "$(local_size "$part")" -le "$size" ] || rm -f "$part"
    for attempt in 1 2 3; do
        [ "$(local_size "$part")" = "$size" ] && break
        [ "$attempt" = 1 ] || sleep "${RETRY_SECONDS:-5}"
        curl --silent --fail --location --connect-timeout 20 --continue-at - --output "$part" "$url"
        status=$?
        [ $status = 33 ] && rm -f "$part"  # the server cannot resume; start over
    done
    local got; got=$(local_size "$part")
    [ "$got" = "$size" ] ||
        fail "$name: received only $got of $size bytes (curl status $status); run again to resume"
    check_header "$part" "$name" "$magic"
    mv "$part" "$file" || fail "cannot write $file"
    echo "$name: $size bytes"
}

# Downloads the validation shard and the first N training shards; their names start with PREFIX.
fetch_shards() {
    local prefix=$1 count=$2 most=$3 i
    case $count in '' | *[!0-9]*) count=0 ;; esac
    { [ "$count" -ge 1 ] && [ "$count" -le "$most" ]; } ||
        fail "the number of training shards must be from 1 to $most, not '$2'"
    fetch "${prefix}_val_000000.bin" 20240520
    for i in $(seq 1 "$count"); do fetch "$(printf '%s_train_%06d.bin' "$prefix" "$i")" 20240520; done
}

# Sets base (the server's folder) and dir (the local one).
from() {
    base=${BASE_URL:-$hub/$1/resolve/main}
    base=${base%/}
    dir=$2
    mkdir -p "$dir" 2>/dev/null || fail "cannot create the folder $dir"
    [ -w "$dir" ] || fail "cannot write to the folder $dir"
}

usage="usage: download.sh starter [DIR] | gpt2 SIZE [DIR] | fineweb N [DIR] | fineweb-edu N [DIR]"
command -v curl >/dev/null || fail "curl not found: install the package curl"
here=$(dirname "$0")
case ${1:-} in
    starter)
        [ $# -le 2 ] || fail "$usage"
        from karpathy/llmc-starter-pack "${2:-$here/starter}"
        fetch gpt2_tokenizer.bin 20240328
        fetch tiny_shakespeare_val.bin 20240520
        fetch tiny_shakespeare_train.bin 20240520
        fetch hellaswag_val.bin 20240522
        fetch gpt2_124M_bf16.bin 20240326
        fetch gpt2_124M.bin 20240326
        fetch gpt2_124M_debug_state.bin 20240327
        ;;
    gpt2)
        [ $# -le 3 ] || fail "$usage"
        case ${2:-} in
            gpt2 | gpt2-medium | gpt2-large | gpt2-xl) ;;
            *) fail "SIZE must be gpt2, gpt2-medium, gpt2-large or gpt2-xl, not '${2:-}'" ;;
        esac
        hub=https://huggingface.co from "openai-community/$2" "${3:-$here/$2}"
        fetch config.json json
        fetch model.safetensors safetensors
        ;;
    fineweb)
        [ $# -le 3 ] || fail "$usage"
        from chrisdryden/FineWebTokenizedGPT2 "${3:-$here/fineweb}"
        fetch_shards fineweb "${2:-}" 1028
        ;;
    fineweb-edu)
        [ $# -le 3 ] || fail "$usage"
        from karpathy/fineweb-edu-100B-gpt2-token-shards "${3:-$here/fineweb-edu}"
        fetch_shards edu_fineweb "${2:-}" 1001
        ;;
    *) fail "$usage" ;;
esac
