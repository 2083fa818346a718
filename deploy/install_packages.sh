#!/usr/bin/env bash
# install_packages.sh LIST...: installs the packages of these lists of deploy/packages.txt that are missing,
# and nothing when none is. Works as root or through sudo. The output of apt-get goes to a log file; its
# path is printed on failure.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
list=$root/deploy/packages.txt
log=$root/build/packages.log

fail() {
  echo "packages: $*" >&2
  exit 1
}

mapfile -t known < <(sed -n 's/^\[\(.*\)\]$/\1/p' "$list")
[ $# -gt 0 ] || fail "say which lists of deploy/packages.txt: ${known[*]}"
for name in "$@"; do
  [[ " ${known[*]} " == *" $name "* ]] || fail "deploy/packages.txt has no list $name, only ${known[*]}"
done

# Prints the packages of the lists that are named.
listed() {
  sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$list" | awk -v names=" $* " '
    /^\[.*\]$/ { on = index(names, " " substr($0, 2, length($0) - 2) " "); next }
    on' | sort -u
}
mapfile -t wanted < <(listed "$@")
[ "${#wanted[@]}" -gt 0 ] || fail "deploy/packages.txt: no package for $*"

command -v dpkg-query >/dev/null ||
  fail "this is not a Debian system: install the counterparts of deploy/packages.txt yourself," \
       "then add PACKAGES=skip to the make command"

# Prints the wanted packages that are not installed.
missingPackages() {
  dpkg-query --show --showformat='${db:Status-Abbrev} ${Package}\n' "${wanted[@]}" 2>/dev/null |
    awk '$1 == "ii" { print $2 }' | sort -u |
    comm -13 - <(printf '%s\n' "${wanted[@]}" | sort -u)
}

mapfile -t missing < <(missingPackages)
if [ "${#missing[@]}" -eq 0 ]; then
  echo "packages: all ${#wanted[@]} for $* are installed"
  exit 0
fi

command -v apt-get >/dev/null || fail "apt-get is not here; missing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null ||
    fail "neither root nor sudo; as root, run: apt-get install --no-install-recommends ${missing[*]}"
  as_root=(sudo)
  # Without a terminal sudo could only wait for a password that nobody types.
  [ -t 0 ] || sudo -n true 2>/dev/null ||
    fail "sudo wants a password and there is no terminal; as root, run:" \
         "apt-get install --no-install-recommends ${missing[*]}"
fi

mkdir -p "$(dirname "$log")"
: >"$log"
echo "packages: installing ${#missing[@]} missing for $* (log: build/packages.log)"

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" >>"$log" 2>&1
}

# The package lists may be absent or older than the archive: refresh them only when they do not serve.
install() { apt install --no-install-recommends "${missing[@]}"; }
if ! install; then
  apt update || fail "apt-get update failed: see $log"
  install || fail "apt-get could not install ${missing[*]}: see $log"
fi

mapfile -t missing < <(missingPackages)
[ "${#missing[@]}" -eq 0 ] || fail "still missing after the installation: ${missing[*]}: see $log"
echo "packages: installed"
