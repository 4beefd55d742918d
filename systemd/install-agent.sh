#!/bin/sh
# Installs, upgrades, rolls back or removes the Longshore agent of this machine. A scheduler serves this script at
# /install/agent and fills in its release; the script installs itself as `longshore-agent`. The script holds no secret:
# a join token comes by standard input or by a file, never as an argument.
set -eu

RELEASE_VERSION=''
RELEASE_FILE=''
RELEASE_SHA256=''
RELEASE_ARM64_VERSION=''
RELEASE_ARM64_FILE=''
RELEASE_ARM64_SHA256=''

ROOT=/opt/longshore
# The release that runs.
CURRENT=$ROOT/current
# Where the Debian package has its release.
PACKAGE=/usr/lib/longshore-agent
CONFIG=/etc/longshore-agent
# Where this file is, it has the keys of which one must have signed a release.
KEYS=$CONFIG/release-keys.gpg
STATE=/var/lib/longshore-agent
UNITS=/etc/systemd/system
STATE_DISK=10-longshore-state-disk.conf
AGENT=longshore-agent.service
DRAIN=longshore-agent-drain.service
MOUNTS=longshore-mounts.service
GPU_RESET=longshore-gpu-reset
OWN_UNITS="$AGENT $DRAIN $MOUNTS $GPU_RESET.path $GPU_RESET.service"
WAIT_SECONDS=90

usage() {
  cat <<'TEXT'
longshore-agent: the Longshore agent of this machine, as a systemd service

  install [--from URL --scheduler HOST:PORT] [--archive FILE] [--no-start]
                 install, install again or upgrade; containers go on. A join token is read from standard input, or from the
                 file that LONGSHORE_JOIN_TOKEN_FILE names. --archive takes a release from a file instead of the scheduler.
                 HTTPS_PROXY, HTTP_PROXY and NO_PROXY (also in lower case) become settings of the agent; where sudo drops
                 them, they may follow the token on standard input, a line name=value each. --no-start leaves the agent
                 stopped, for an image of this disk
  join [--scheduler HOST:PORT]
                 join by a token, which comes as for install, and start the agent that is installed
  reset [--purge]
                 let running work end, stop the agent and forget which machine this is; --purge removes local volumes, too.
                 Do so before an image of this disk is taken
  rollback       go back to the release before; containers go on
  uninstall [--purge]
                 let running work end, then remove the agent; --purge removes its settings, its identity and local volumes, too
  status         what is installed, and how it is
TEXT
}

say() { printf '%s\n' "$*"; }
fail() {
  printf 'longshore-agent: %s\n' "$*" >&2
  exit 1
}

main() {
  command=install
  case "${1:-}" in
    install | join | reset | rollback | uninstall | status) command=$1; shift ;;
    -h | --help | help) usage; exit 0 ;;
  esac
  from='' scheduler='' archive='' purge='' no_start=''
  while [ $# -gt 0 ]; do
    case "$1" in
      --from | --scheduler | --archive)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case "$1" in --from) from=$2 ;; --scheduler) scheduler=$2 ;; --archive) archive=$2 ;; esac
        shift 2 ;;
      --purge) purge=yes; shift ;;
      --no-start) no_start=yes; shift ;;
      lsj1.* | lse1.*) fail 'a join token is no argument: every user could read it in the list of processes. Give it on standard input' ;;
      *) usage >&2; fail "there is no option $1" ;;
    esac
  done
  [ "$(id -u)" = 0 ] || fail 'run it as root (sudo)'
  [ -d /run/systemd/system ] || fail 'this machine does not run systemd; run `longshore agent` under its own service manager'
  [ ! -e "$PACKAGE/lib/agent.mjs" ] || leave_to_package
  mkdir -p "$ROOT"
  if command -v flock >/dev/null; then
    exec 9>"$ROOT/.lock"
    flock -n 9 || fail 'another installation is under way'
  fi
  "do_$command"
}

# The package's own command joins the machine; apt makes all other changes.
leave_to_package() {
  case "$command" in install | join)
    if [ -n "$scheduler" ] && [ -z "$archive" ]; then exec "$PACKAGE/bin/longshore-agent" join --scheduler "$scheduler"; fi ;;
  esac
  fail 'the agent of this machine is a Debian package: `apt install ./longshore-agent_….deb` upgrades it or goes back, `apt remove longshore-agent` removes it'
}

do_install() {
  check_machine
  read_token
  read_proxies
  previous=$(readlink "$ROOT/current" 2>/dev/null || true)
  fetch_release
  write_settings
  note_link
  switch_to "$release"
  if [ -n "$no_start" ]; then
    settle
    say "longshore-agent $(version_of "$release") is installed and does not run: \`longshore-agent join\` starts it"
    return
  fi
  if start_agent; then
    forget_token
    settle
    say "longshore-agent $(version_of "$release"): $(status_text)"
    return
  fi
  journal_tail
  [ -z "$previous" ] || [ "$previous" = "$release" ] || go_back
  not_started
}

# The release before tells whose fault a missing link is.
go_back() {
  why='does not start'
  ! systemctl -q is-active "$AGENT" || why="has no link to the scheduler after $WAIT_SECONDS s ($(status_text))"
  say "the new release $why; going back to $(version_of "$previous")" >&2
  switch_to "$previous"
  start_agent && fail 'not upgraded: the release before runs again'
  systemctl -q is-active "$AGENT" || fail 'and neither does the one before: see `journalctl -u longshore-agent`'
  fail "not upgraded: the release before runs again, and has no link either ($(status_text)). Run this again once the scheduler answers"
}

# A release that works is kept, with the one before it.
settle() {
  remember_previous "$previous" "$release"
  remove_old
  mkdir -p /usr/local/bin /usr/local/sbin
  ln -sfn "$ROOT/current/bin/longshore" /usr/local/bin/longshore
  ln -sfn "$ROOT/current/systemd/install-agent.sh" /usr/local/sbin/longshore-agent
}

# A token that stays in its file is emptied by the agent once it has joined.
not_started() {
  if systemctl -q is-active "$AGENT"; then
    [ -n "$token_needed" ] || fail "no link to the scheduler after $WAIT_SECONDS s, and the agent goes on trying: $(status_text)"
    fail "not joined yet, and the agent goes on trying: $(status_text). \`longshore-agent status\` shows when it has joined"
  fi
  ! engine_is_away || fail "$(engine_words)"
  forget_token
  fail "the agent does not run: $(last_words)"
}

# An agent that finds no Docker Engine ends with this status, and systemd starts it again.
engine_is_away() { [ "$(systemctl show -p ExecMainStatus --value "$AGENT")" = 69 ]; }
engine_words() {
  say "no Docker Engine answers, so the agent cannot run. Start Docker (\`systemctl start docker\`), or set DOCKER_HOST in $CONFIG/agent.env: systemd tries the agent again every few seconds. Then look: \`longshore-agent status\`"
}

# The sentence with which the agent ended.
last_words() {
  words=$(journalctl -u "$AGENT" -n 30 --no-pager -o cat 2>/dev/null | sed -n 's/^longshore-agent: //p' | tail -n 1)
  printf %s "${words:-the lines above say why}"
}

# Nothing is fetched: an image of a disk has the release.
do_join() {
  release=$(running_release) || fail 'no agent is installed here: `longshore-agent install` does that'
  read_token
  [ -n "$token" ] || fail 'a token is needed: give it on standard input, or in the file that LONGSHORE_JOIN_TOKEN_FILE names'
  read_proxies
  write_settings
  if start_agent; then
    forget_token
    say "longshore-agent $(version_of "$release"): $(status_text)"
    return
  fi
  journal_tail
  not_started
}

do_reset() {
  running_release >/dev/null || fail 'not installed'
  check_state
  end_work
  end_units
  forget_token
  if [ -n "$purge" ]; then empty_state; else rm -rf "$STATE/agent"; fi
  say 'this host is no machine of an installation now: `longshore-agent join` makes it a new one'
  say 'The one that it was, in the installation: `longshore machine delete <id>`'
}

running_release() { readlink "$ROOT/current" 2>/dev/null; }

end_work() {
  systemctl -q is-active "$AGENT" || return 0
  say 'letting running work end (its time: LONGSHORE_SHUTDOWN_DRAIN_SECONDS) ...'
  systemctl stop "$DRAIN" 2>/dev/null || true
  LONGSHORE_DATA_DIR=$STATE "$CURRENT/bin/node" "$CURRENT/lib/agent.mjs" end-containers || say 'containers did not all stop' >&2
}

# Other programs may keep files in the directory that the settings name, so only the agent's own folders go. Mounts stay
# untouched.
empty_state() {
  for folder in "$STATE/agent" "$STATE/cache" "$STATE/volumes"; do
    [ -L "$folder" ] || ! mountpoint -q "$folder" || continue
    [ ! -e "$folder" ] && [ ! -L "$folder" ] || find "$folder" -xdev -delete ||
      say "not all of $folder could be removed" >&2
  done
}

# Nothing is removed below a directory that cannot be the agent's own.
check_state() {
  case "/$STATE/" in
    //*[!/.]*) ;;
    *) bad_state ;;
  esac
  case "/$STATE/" in */../*) bad_state ;; esac
}
bad_state() {
  fail "nothing was changed: LONGSHORE_DATA_DIR in $CONFIG/agent.env is $STATE, and must be an absolute path other than / and without .. in it. Correct it, and run this again"
}

do_rollback() {
  previous=$(readlink "$ROOT/previous" 2>/dev/null || true)
  [ -n "$previous" ] && [ -d "$ROOT/$previous" ] || fail 'there is no release before this one'
  now=$(readlink "$ROOT/current")
  note_link
  switch_to "$previous"
  start_agent || { journal_tail; fail 'the release before does not start, or gets no link; `longshore-agent rollback` goes forward again'; }
  remember_previous "$now" "$previous"
  say "longshore-agent $(version_of "$previous"): $(status_text)"
}

do_uninstall() {
  [ -z "$purge" ] || check_state
  end_work
  end_units
  rm -f "$UNITS/$AGENT" "$UNITS/$DRAIN" "$UNITS/$MOUNTS" "$UNITS/$GPU_RESET.path" "$UNITS/$GPU_RESET.service" /usr/local/sbin/longshore-agent
  remove_state_disk
  [ "$(readlink /usr/local/bin/longshore 2>/dev/null)" != "$ROOT/current/bin/longshore" ] || rm -f /usr/local/bin/longshore
  reload_units
  if ! systemctl -q is-enabled longshore-scheduler.service 2>/dev/null; then rm -rf "$ROOT"; fi
  forget_token
  if [ -n "$purge" ]; then
    rm -rf "$CONFIG"
    empty_state
    rmdir "$STATE" 2>/dev/null || true
    say 'removed, with its settings, its identity and local volumes'
  else
    say "removed; $CONFIG and $STATE (identity, local volumes) are left: --purge removes them"
  fi
  say 'In the installation: `longshore machine delete <id>`'
}

do_status() {
  release=$(readlink "$ROOT/current" 2>/dev/null) || fail 'not installed'
  say "release $(version_of "$release"), before it $(version_of "$(readlink "$ROOT/previous" 2>/dev/null || echo none)")"
  say "$(systemctl show -p ActiveState --value "$AGENT"): $(status_text)"
}

check_machine() {
  given_out=$RELEASE_SHA256$RELEASE_ARM64_SHA256
  architecture=$(uname -m)
  case "$(uname -s)-$architecture" in
    Linux-x86_64) machine_bytes='3e 00' ;;
    Linux-aarch64 | Linux-arm64)
      machine_bytes='b7 00'
      RELEASE_VERSION=$RELEASE_ARM64_VERSION RELEASE_FILE=$RELEASE_ARM64_FILE RELEASE_SHA256=$RELEASE_ARM64_SHA256 ;;
    *) fail "there is no release for $(uname -s) on $architecture, only for Linux on x86_64 and aarch64" ;;
  esac
  if [ -n "$given_out" ] && [ -z "$RELEASE_SHA256" ] && [ -z "$archive" ]; then
    fail "this scheduler gives out no release for $architecture: build one on such a machine (npm run build) and put it beside the other, as docs/machines.md says"
  fi
  for program in tar gzip sha256sum systemd-notify; do
    command -v "$program" >/dev/null || fail "$program is missing: install it first"
  done
  [ -S /var/run/docker.sock ] || grep -qs '^DOCKER_HOST=' "$CONFIG/agent.env" ||
    say 'no Docker Engine answers at /var/run/docker.sock yet: the agent waits for one' >&2
}

# The token comes from a file or a pipe, never by typing: a terminal means that there is none.
read_token() {
  token='' given=''
  if [ -n "${LONGSHORE_JOIN_TOKEN_FILE:-}" ]; then given=$(cat "$LONGSHORE_JOIN_TOKEN_FILE")
  elif [ ! -t 0 ]; then given=$(head -c 16384); fi
  while IFS= read -r line; do
    case "$line" in
      '') ;;
      lsj1.*.* | lse1.*.*) token=$line ;;
      HTTPS_PROXY=* | https_proxy=* | HTTP_PROXY=* | http_proxy=* | NO_PROXY=* | no_proxy=*) export "$line" ;;
      *) fail 'standard input holds no join token: it begins with lsj1. or lse1.' ;;
    esac
  done <<TEXT
$given
TEXT
}

# Programs know the variable in both cases; lower case wins, as in the agent.
either_case() {
  value=$(printenv "$(lower "$1")" || true)
  [ -n "$value" ] || value=$(printenv "$1" || true)
  printf %s "$value"
}
lower() { printf %s "$1" | tr '[:upper:]' '[:lower:]'; }

# Settings without a new value keep their line as the operator wrote it.
use_proxies() {
  for name in $given_proxies; do set_setting "$name" "$(either_case "$name")"; done
}

# An upgrade keeps the proxies of the first installation.
read_proxies() {
  given_proxies=''
  for name in HTTPS_PROXY HTTP_PROXY NO_PROXY; do
    if [ -n "$(either_case "$name")" ]; then
      given_proxies="$given_proxies $name"
      continue
    fi
    value=$(setting "$name")
    # curl knows http_proxy in lower case alone.
    [ -z "$value" ] || export "$(lower "$name")=$value"
  done
}

# The value of a setting, as systemd reads it: literal in single quotes; in double quotes a backslash stands before
# " \ ` and $ alone.
setting() {
  value=$(sed -n "s/^[[:space:]]*$1=[[:space:]]*//p" "$CONFIG/agent.env" 2>/dev/null | tail -n 1 | sed 's/[[:space:]]*$//')
  case "$value" in
    "'"*"'") value=${value#"'"} value=${value%"'"} ;;
    '"'*'"') value=$(printf %s "$value" | sed 's/^"//; s/"$//; s/\\\(["\\`$]\)/\1/g') ;;
    *) value=$(printf %s "$value" | sed 's/\\\(.\)/\1/g') ;;
  esac
  printf %s "$value"
}

# A value in double quotes, as systemd reads them. The file has secrets, so no program has them as arguments.
set_setting() {
  quoted=$(printf %s "$2" | sed 's/[\\"`$]/\\&/g')
  (umask 077 && {
    grep -vE "^#?$1=" "$CONFIG/agent.env" || true
    printf '%s="%s"\n' "$1" "$quoted"
  } >"$CONFIG/agent.env.new")
  mv "$CONFIG/agent.env.new" "$CONFIG/agent.env"
}

fetch_release() {
  mkdir -p "$ROOT/releases"
  if [ -n "$archive" ]; then
    RELEASE_SHA256=$(sha256sum "$archive" | cut -c1-64)
    RELEASE_VERSION=$(basename "$archive" .tar.gz)
  fi
  if [ -z "$RELEASE_SHA256" ]; then
    # The script of an installed release has nothing to fetch: the running release is installed again.
    release=$previous
    [ -n "$release" ] || fail 'name a release with --archive, or take this script from a scheduler: curl .../install/agent'
    return
  fi
  release="releases/$RELEASE_VERSION-$(printf %s "$RELEASE_SHA256" | cut -c1-12)"
  [ ! -x "$ROOT/$release/bin/node" ] || return 0
  work=$(mktemp -d "$ROOT/releases/.new-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM HUP
  if [ -z "$archive" ]; then
    [ -n "$from" ] || fail '--from needs the URL of the scheduler'
    archive="$work/release.tar.gz"
    download "$from/install/releases/$RELEASE_FILE" "$archive"
  fi
  echo "$RELEASE_SHA256  $archive" | sha256sum -c --status - || fail "what came as $RELEASE_FILE is not what was promised (sha256 $RELEASE_SHA256)"
  check_signature
  mkdir "$work/release"
  tar -xzf "$archive" -C "$work/release" --strip-components=1 --no-same-owner
  chmod 755 "$work/release"
  check_program "$work/release/bin/node"
  rm -rf "${ROOT:?}/$release"
  mv "$work/release" "$ROOT/$release"
}

# The hash comes from where the archive does. The key was put on this host by its operator.
check_signature() {
  [ -e "$KEYS" ] || [ -L "$KEYS" ] || return 0
  command -v gpgv >/dev/null || fail "gpgv is missing, and $KEYS asks for signed releases: install the package gpgv (gnupg2 on Red Hat) first"
  signature="$archive.asc"
  if [ "$archive" = "$work/release.tar.gz" ]; then download "$from/install/releases/$RELEASE_FILE.asc" "$signature"
  elif [ ! -f "$signature" ]; then fail "$archive has no signature beside it ($(basename "$signature")), and $KEYS asks for one"; fi
  # gpgv takes keys whose time is over; a line of its status names them.
  verdict=$(gpgv --homedir "$work" --keyring "$KEYS" --status-fd 1 "$signature" "$archive" 2>/dev/null) || unsigned
  printf '%s\n' "$verdict" | grep -q '^\[GNUPG:\] GOODSIG ' || unsigned
  ! printf '%s\n' "$verdict" | grep -qE '^\[GNUPG:\] (EXPKEYSIG|EXPSIG|REVKEYSIG|BADSIG|ERRSIG) ' || unsigned
}
unsigned() {
  fail "the release ${RELEASE_FILE:-$archive} is not signed by a key of $KEYS (as \`gpg --export\` writes them): it was changed, or somebody else built it. Nothing is installed"
}

# The kernel reads a program's architecture after the first 18 bytes.
check_program() {
  case "$(od -An -tx1 -N4 "$1")" in *'7f 45 4c 46'*) ;; *) return 0 ;; esac
  case "$(od -An -tx1 -j18 -N2 "$1")" in
    *"$machine_bytes"*) ;;
    *) fail "the release is for another architecture than this machine's, $architecture" ;;
  esac
}

download() {
  if command -v curl >/dev/null; then curl -fsSL --connect-timeout 10 --retry 3 -o "$2" "$1"
  elif command -v wget >/dev/null; then wget -q --timeout=30 --tries=3 -O "$2" "$1"
  else fail 'neither curl nor wget is installed'; fi || fail "$1 could not be fetched"
}

# The files of settings, with every setting commented out.
make_settings() {
  mkdir -p "$CONFIG"
  chmod 755 "$CONFIG"
  [ -f "$CONFIG/mounts.env" ] || [ ! -f "$ROOT/$release/systemd/mounts.env" ] ||
    install -m 600 "$ROOT/$release/systemd/mounts.env" "$CONFIG/mounts.env"
  [ -f "$CONFIG/agent.env" ] || install -m 600 "$ROOT/$release/systemd/agent.env" "$CONFIG/agent.env"
  require_state_disk
}

# A data directory on a disk of its own: the agent waits for its mount, and does not start beside it. systemd knows that
# of the unit's own directory by itself. Other disks, such as that of cache volumes, keep no agent from its work.
require_state_disk() {
  where=$(setting LONGSHORE_DATA_DIR)
  case "$where" in
    '' | "$UNIT_STATE" | *[!A-Za-z0-9._/@:+-]*) remove_state_disk; return 0 ;;
  esac
  drop_in "$AGENT" '[Unit]\nRequiresMountsFor=%s\n[Service]\nReadWritePaths=-%s\n' "$where" "$where"
  resets=$where/agent/gpu-reset
  drop_in "$GPU_RESET.path" '[Path]\nPathExists=\nPathExists=%s/request\n' "$resets"
  drop_in "$GPU_RESET.service" '[Service]\nWorkingDirectory=%s\nReadWritePaths=-%s\n' "$resets" "$resets"
}

# A file that is as it was stays: systemd would ask for a reload.
drop_in() {
  file=$UNITS/$1.d/$STATE_DISK
  shift
  mkdir -p "${file%/*}"
  {
    echo '# Written by the installer from LONGSHORE_DATA_DIR.'
    printf "$@"
  } >"$file.new"
  if cmp -s "$file.new" "$file"; then rm "$file.new"; else mv "$file.new" "$file"; fi
}

remove_state_disk() {
  for unit in "$AGENT" "$GPU_RESET.path" "$GPU_RESET.service"; do
    rm -f "$UNITS/$unit.d/$STATE_DISK"
    rmdir "$UNITS/$unit.d" 2>/dev/null || true
  done
}

write_settings() {
  make_settings
  if [ -n "$scheduler" ]; then
    case "$scheduler" in *[!A-Za-z0-9.:_\[\]-]*) fail '--scheduler must be host:port' ;; esac
    sed "s|^#\{0,1\}LONGSHORE_SCHEDULER_ADDRESS=.*|LONGSHORE_SCHEDULER_ADDRESS=$scheduler|" "$CONFIG/agent.env" >"$CONFIG/agent.env.new"
    chmod 600 "$CONFIG/agent.env.new"
    grep -q '^LONGSHORE_SCHEDULER_ADDRESS=' "$CONFIG/agent.env.new" || echo "LONGSHORE_SCHEDULER_ADDRESS=$scheduler" >>"$CONFIG/agent.env.new"
    mv "$CONFIG/agent.env.new" "$CONFIG/agent.env"
  fi
  use_proxies
  [ -n "$no_start" ] || grep -q '^LONGSHORE_SCHEDULER_ADDRESS=.' "$CONFIG/agent.env" || fail '--scheduler must say where the scheduler listens for agents, host:1995'
  if [ -n "$token" ] && [ -z "$no_start" ]; then
    (umask 077 && printf '%s\n' "$token" >"$CONFIG/join-token")
  fi
}

# A token that joined is needed no more. An enrolment token would join other hosts.
forget_token() { rm -f "$CONFIG/join-token"; }

# Units name /opt/longshore/current, so the release changes in one step.
switch_to() {
  for unit in $OWN_UNITS; do
    cmp -s "$ROOT/$1/systemd/$unit" "$UNITS/$unit" || install -m 644 "$ROOT/$1/systemd/$unit" "$UNITS/$unit"
  done
  ln -sfn "$1" "$ROOT/.current"
  mv -T "$ROOT/.current" "$ROOT/current"
  reload_changed $OWN_UNITS
}

reload_changed() {
  for unit in "$@"; do
    # systemd reads a new unit by itself; only a unit that it holds in another form needs a reload.
    [ "$(systemctl show -p LoadState --value "$unit")" = loaded ] && [ "$(systemctl show -p NeedDaemonReload --value "$unit")" = no ] && continue
    reload_units
    return 0
  done
}

# With the systemd cgroup driver, a reload takes GPUs away from containers that have them from NVIDIA's hook.
reload_units() {
  if gpu_container_runs; then
    say 'units changed, and a reload may take the GPUs from containers that run here: run `systemctl daemon-reload` once they have ended' >&2
    return 0
  fi
  systemctl daemon-reload
}

# The hook mounts the devices into the container, for any engine and any owner.
gpu_container_runs() { grep -qsE ' /dev/nvidia(ctl|[0-9]+) ' /proc/[0-9]*/mountinfo; }

# An agent that is linked must be so again after the change of its release.
note_link() {
  case "$(status_text)" in connected*) link_needed=yes ;; esac
}

# Fails where the agent does not run, or has no link though it needs one: to join, or because it had one before.
start_agent() {
  # Without --no-reload, enabling a unit reloads all of systemd.
  for unit in "$AGENT" "$DRAIN"; do
    systemctl -q is-enabled "$unit" 2>/dev/null || systemctl enable -q --no-reload "$unit"
  done
  start_mounts
  start_resets
  systemctl reset-failed -q "$AGENT" 2>/dev/null || true
  systemctl restart "$AGENT" || return 1
  systemctl start "$DRAIN" || true
  waited=0
  while :; do
    case "$(status_text)" in connected*) return 0 ;; esac
    # Without a link before, a scheduler that is away does not undo an upgrade: the machine joined long ago.
    [ -z "$token_needed$link_needed" ] && [ "$waited" -ge 10 ] && return 0
    systemctl -q is-failed "$AGENT" && return 1
    [ "$waited" -lt "$WAIT_SECONDS" ] || return 1
    waited=$((waited + 1))
    sleep 1
  done
}

# The mount helper runs where buckets can be mounted, and starts before the agent, which asks for it once. Its mounts
# outlive its restart.
start_mounts() {
  command -v s3fs >/dev/null && [ -e /dev/fuse ] || return 0
  systemctl -q is-enabled "$MOUNTS" 2>/dev/null || systemctl enable -q --no-reload "$MOUNTS"
  systemctl restart "$MOUNTS" || say 'the mount helper does not start: see `journalctl -u longshore-mounts`' >&2
}

# Resets of GPUs are a unit of their own, because the agent's has no capability. The path unit runs on every host: a GPU
# may be added later, and without a request nothing starts.
start_resets() {
  systemctl -q is-enabled "$GPU_RESET.path" 2>/dev/null || systemctl enable -q --no-reload "$GPU_RESET.path"
  systemctl restart "$GPU_RESET.path" || say 'GPUs cannot be reset by `longshore machine gpu reset`: see `systemctl status longshore-gpu-reset.path`' >&2
}

# A missing unit must not keep the others running.
end_units() {
  systemctl disable --now --no-reload -q "$DRAIN" "$AGENT" "$MOUNTS" 2>/dev/null || true
  systemctl disable --now --no-reload -q "$GPU_RESET.path" 2>/dev/null || true
  end_mounts
}

end_mounts() {
  awk '$2 ~ "^/run/longshore-mounts/" { print $2 }' /proc/mounts | while IFS= read -r path; do umount -l "$path" || true; done
  rm -rf /var/cache/longshore-mounts
  # A mount that stays is somebody's bucket: what is behind it is left alone.
  [ ! -d /run/longshore-mounts ] || find /run/longshore-mounts -xdev -delete 2>/dev/null || true
}

status_text() { systemctl show -p StatusText --value "$AGENT"; }
version_of() { basename "$1"; }
journal_tail() {
  journalctl --sync 2>/dev/null || true
  journalctl -u "$AGENT" -n 15 --no-pager -o cat >&2 2>/dev/null || true
}

remember_previous() {
  [ -n "$1" ] && [ "$1" != "$2" ] || return 0
  ln -sfn "$1" "$ROOT/.previous"
  mv -T "$ROOT/.previous" "$ROOT/previous"
}

# The running release and the one before stay.
remove_old() {
  kept=" $(readlink "$ROOT/current") $(readlink "$ROOT/previous" 2>/dev/null || true) "
  for path in "$ROOT"/releases/*; do
    case "$kept" in *" releases/$(basename "$path") "*) ;; *) rm -rf "$path" ;; esac
  done
}

# The settings name the state directory.
own_state=$(setting LONGSHORE_DATA_DIR)
UNIT_STATE=$STATE
STATE=${own_state:-$STATE}
token_needed=''
link_needed=''
[ -f "$STATE/agent/machine.json" ] || token_needed=yes
# The command of the package takes the functions.
[ -n "${FUNCTIONS_ALONE:-}" ] || {
  main "$@"
  exit 0
}
