# Read by the recipes of the Makefile: how long each phase of a goal takes, and what the machine had to
# do beside it. On standard error: what programs print stays as it is.

# said NAME SECONDS
said() {
  echo "time: $1 $2 s (load average $(cut -d ' ' -f 1-3 /proc/loadavg))" >&2
}

# phase NAME COMMAND...: ends as the command does.
phase() {
  local name=$1 began=$EPOCHSECONDS code=0
  shift
  "$@" || code=$?
  said "$name" $((EPOCHSECONDS - began))
  return $code
}

# Installs the lists of deploy/packages.txt that are named.
packages() {
  [ "${PACKAGES:-}" = skip ] || phase packages deploy/install_packages.sh "$@"
}
