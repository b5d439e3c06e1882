#!/usr/bin/env bash
# Downloads llm.c's ready-made files and published models. A second run downloads only files that are missing,
# incomplete or damaged. DIR/SHA256SUMS has the checksums of what was downloaded: `sha256sum -c SHA256SUMS`.
#     data/download.sh starter [DIR]        GPT-2 124M, its debug state, tokenizer, tinyshakespeare, HellaSwag
#     data/download.sh gpt2 SIZE [DIR]      Hugging Face's gpt2, gpt2-medium, gpt2-large or gpt2-xl
#     data/download.sh fineweb N [DIR]      FineWeb tokens: the validation shard, 1-1028 training shards
#     data/download.sh fineweb-edu N [DIR]  FineWeb-Edu tokens: likewise, 1-1001 shards of 200 MB each
# DIR is the target folder, data/NAME by default. BASE_URL=... downloads from another server's folder.
set -u

hub=https://huggingface.co/datasets
# prints text from elsewhere on one line, without characters that act on a terminal
printable() {
    printf '%s' "$*" | LC_ALL=C tr '\000-\037\177' '?' |
        LC_ALL=C sed $'s/\xc2[\x80-\x9f]/?/g; s/\xd8\x9c/?/g; s/\xe2\x80[\x8e\x8f\xa8-\xae]/?/g
            s/\xe2\x81[\xa6-\xa9]/?/g'
}
fail() { printf 'download.sh: %s\n' "$(printable "$*")" >&2; exit 1; }

# Prints three words about the server's file, after redirects: its size; its SHA-256, which Hugging Face calls
# X-Linked-ETag; and its version, which goes into If-Range, with %20 for spaces. "-" for what it does not say.
# A weak ETag is no version of the bytes. Prints nothing if there is no such file or no answer.
describe_remote() {
    local headers
    headers=$(curl --silent --fail --head --location --connect-timeout 20 "$1") || return
    echo "$headers" | tr -d '\r' | awk '
        function value() { sub(/^[^:]*:[ \t]*/, ""); gsub(/ /, "%20"); return $0 }
        /^HTTP\// { etag = modified = "" }
        tolower($1) == "content-length:" { size = $2 }
        tolower($1) == "x-linked-etag:" { sum = tolower($2); gsub(/"/, "", sum) }
        tolower($1) == "etag:" && $2 !~ /^W\// { etag = value() }
        tolower($1) == "last-modified:" { modified = value() }
        END {
            if (sum !~ /^[0-9a-f]+$/ || length(sum) != 64) sum = "-"
            version = etag ? etag : modified ? modified : "-"
            if (size ~ /^[0-9]+$/ && length(size) < 19) print size, sum, version
        }'
}

# prints the SHA-256 of a file; nothing if this system has no program for it
sha256() { { sha256sum "$1" 2>/dev/null || shasum -a 256 "$1" 2>/dev/null; } | cut -d ' ' -f 1; }

# prints the SHA-256 that the file $1 in $dir had when it was downloaded
kept_sum() { [ ! -f "$dir/SHA256SUMS" ] || awk -v name="$1" '$2 == name { print $1 }' "$dir/SHA256SUMS"; }

# keeps the SHA-256 $2 of the file $1
keep_sum() {
    local sums=$dir/SHA256SUMS
    rm -f "$sums.part"
    if [ -f "$sums" ]; then awk -v name="$1" '$2 != name' "$sums"; fi >"$sums.part"
    if ! echo "$2  $1" >>"$sums.part" || ! mv "$sums.part" "$sums"; then fail "cannot write $sums"; fi
}

local_size() { if [ -f "$1" ]; then wc -c <"$1" | tr -d ' '; else echo 0; fi; }

# prints int32 number $2 of the header of file $1
header_int() { od -A n -t d4 -j $((4 * $2)) -N 4 "$1" | tr -d ' '; }

# Checks the format of a complete file, and that a shard has the length its header says. JSON begins with a
# brace, safetensors with 8 bytes and a brace, a tokenizer's merges with "#version".
check_header() {
    local file=$1 name=$2 magic=$3
    if [ "$magic" = merges ]; then
        [ "$(head -c 8 "$file" | tr -d '\0')" = "#version" ] ||
            { rm -f "$file"; fail "$name is not a list of merges; deleted"; }
        return
    fi
    if [ "$magic" = json ] || [ "$magic" = safetensors ]; then
        local at=1; [ "$magic" = json ] || at=9
        [ "$(tail -c +$at "$file" | head -c 1 | tr -d '\0')" = "{" ] ||
            { rm -f "$file"; fail "$name is not a $magic file; deleted"; }
        [ "$magic" = json ] || [ "$((8 + $(header_int "$file" 0)))" -le "$(local_size "$file")" ] ||
            { rm -f "$file"; fail "$name ends within its header; deleted"; }
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

# Whether this script may have written $dir/$1: it is in SHA256SUMS, begins with the magic number $2, or has
# the server's size $3.
is_ours() {
    [ -f "$dir/$1" ] || return 1
    [ -n "$(kept_sum "$1")" ] || [ "$(header_int "$dir/$1" 0)" = "$2" ] ||
        [ "$(local_size "$dir/$1")" = "$3" ]
}

# Whether the complete file $1 has the SHA-256 $2; true if one of the two is unknown.
has_sum() {
    local found
    { [ -n "$2" ] && [ "$2" != - ]; } || return 0
    found=$(sha256 "$1")
    [ -z "$found" ] || [ "$found" = "$2" ]
}

# Continues $part, or starts over if the server has another version by now: it then ignores the range, and
# curl's status is 33. $version comes from describe_remote.
continue_part() {
    local -a if_range=()
    [ "$version" = - ] || if_range=(--header "If-Range: ${version//%20/ }")
    printf '%s\n' "$version" >"$part.version" || fail "cannot write $part.version"
    curl --silent --fail --location --connect-timeout 20 "${if_range[@]+"${if_range[@]}"}" --continue-at - \
        --output "$part" "$url"
}

# Downloads NAME to DIR/NAME.part, which a later run resumes, and renames it to DIR/NAME.
fetch() {
    local name=$1 magic=$2 url=$base/$1 file=$dir/$1 part=$dir/$1.part size sum version attempt status=0
    read -r size sum version < <(describe_remote "$url")
    [ "${size:-0}" -gt 0 ] || fail "$name: $url gives no size; check the network and the address"
    local known=$sum
    [ "$sum" != - ] || known=$(kept_sum "$name")
    if [ "$(local_size "$file")" = "$size" ] && has_sum "$file" "$known"; then
        check_header "$file" "$name" "$magic"
        echo "$name: already there"
        return
    fi
    [ ! -s "$file" ] || is_ours "$name" "$magic" "$size" ||
        fail "$file is there, and was not downloaded by this script: move it, or choose another folder"
    [ "$(local_size "$file")" -le "$size" ] ||
        fail "$file is longer than the server's $size bytes; move or remove it"
    if [ "$(local_size "$file")" = "$size" ]; then
        echo "$name: damaged, or not the server's version any more; downloading it again"
        rm -f "$part" "$part.version"
    elif [ -f "$file" ]; then  # incomplete
        mv "$file" "$part" && rm -f "$part.version"
    fi
    [ ! -L "$part" ] || rm -f "$part"  # no link is followed
    [ ! -L "$part.version" ] || rm -f "$part.version"
    # without a version of its own, a part may be of another version than the server's
    [ "$(cat "$part.version" 2>/dev/null || echo -)" = "$version" ] || rm -f "$part"
    [ "$(local_size "$part")" -le "$size" ] || rm -f "$part"
    for attempt in 1 2 3; do
        [ "$(local_size "$part")" = "$size" ] && break
        [ "$attempt" = 1 ] || sleep "${RETRY_SECONDS:-5}"
        continue_part
        status=$?
        [ $status = 33 ] && rm -f "$part"  # the server cannot resume, or has another version; start over
    done
    local got; got=$(local_size "$part")
    [ "$got" = "$size" ] ||
        fail "$name: received only $got of $size bytes (curl status $status); run again to resume"
    rm -f "$part.version"
    check_header "$part" "$name" "$magic"
    has_sum "$part" "$sum" ||
        { rm -f "$part"; fail "$name has not the server's checksum; deleted; run again"; }
    local found; found=$(sha256 "$part")
    mv "$part" "$file" || fail "cannot write $file"
    [ -z "$found" ] || keep_sum "$name" "$found"
    echo "$name: $size bytes"
}

# Downloads the validation shard and the first N training shards; their names start with PREFIX.
fetch_shards() {
    local prefix=$1 count=$2 most=$3 i
    case $count in '' | *[!0-9]* | ?????*) count=0 ;; esac  # not a number, or one that may overflow
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
    exec 9<"$dir"  # held until this script ends
    ! command -v flock >/dev/null || flock -n 9 ||
        fail "another download.sh is writing to $dir: wait for it, or choose another folder"
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
        fetch vocab.json json
        fetch merges.txt merges
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
