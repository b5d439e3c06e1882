#!/bin/bash
# Makes the folder ROOT the root of a minimal system: the packages that DEB depends on, copied from this
# system, and DEB itself. dpkg installs it, and so checks its dependencies. There are no compilers, no shell
# and no libraries that DEB does not name. Needs Debian's or Ubuntu's dpkg and apt, but no network.
# Usage: clean_root.sh DEB ROOT
set -euo pipefail
deb=$1 root=$2
mkdir -p "$root/tmp" "$root/usr/bin" "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
for folder in bin lib lib64 sbin; do
    if [ -L "/$folder" ]; then mkdir -p "$root/usr/$folder" && ln -s "usr/$folder" "$root/$folder"; fi
done

direct=$(dpkg-deb -f "$deb" Depends | sed 's/([^)]*)//g; s/|[^,]*//g; s/,/ /g')
# shellcheck disable=SC2086  # one word per package
packages=$(apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances $direct | grep -v '^[ |<]' | sort -u)
# shellcheck disable=SC2086
dpkg-query -L $packages | grep '^/' | grep -v '^/usr/share/' | sort -u | sed 's|^/||' >"$root/tmp/files"
while read -r file; do if [ -e "/$file" ]; then echo "$file"; fi; done <"$root/tmp/files" |
    tar -C / -c --no-recursion -T - | tar -C "$root" -x --keep-directory-symlink
rm "$root/tmp/files"
# shellcheck disable=SC2086
dpkg-query -s $packages >"$root/var/lib/dpkg/status"
for package in $packages; do : >"$root/var/lib/dpkg/info/$package.list"; done
/sbin/ldconfig -r "$root"
dpkg --root="$root" --install "$deb" >&2
