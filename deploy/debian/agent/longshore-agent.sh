#!/bin/sh
# The agent of this machine, as its Debian package installs it: joins the machine, and says how it is. The package's
# scripts call `configure` and `end`. A join token comes by standard input or by a file, never as an argument.
set -eu
FUNCTIONS_ALONE=yes
. /usr/lib/longshore-agent/systemd/install-agent.sh
ROOT=/usr/lib
release=longshore-agent
CURRENT=$ROOT/$release
LEFT_ALONE=/run/longshore-agent.left-alone

usage() {
  cat <<'TEXT'
longshore-agent: the Longshore agent of this machine, as a Debian package

  join --scheduler HOST:PORT
                 join an installation and start the agent. The join token is read from standard input, or from the file
                 that LONGSHORE_JOIN_TOKEN_FILE names; `longshore machine create` prints one. HTTPS_PROXY, HTTP_PROXY and
                 NO_PROXY (also in lower case) become settings of the agent
  reset [--purge]
                 let running work end, and forget which machine this host is; --purge empties the state directory, too
  status         what is installed, and how it is

`apt install ./longshore-agent_….deb` upgrades the agent or goes back, `apt remove longshore-agent` removes it.
TEXT
}

running_release() { echo "$release"; }
version_of() { dpkg-query -W -f '${Version}' longshore-agent; }

do_status() {
  say "package $(version_of)"
  say "$(systemctl show -p ActiveState --value "$AGENT"): $(status_text)"
}

# Containers go on: the agent that starts takes them up.
do_configure() {
  make_settings
  has_systemd || return 0
  reload_changed "$AGENT" "$DRAIN" "$MOUNTS" "$GPU_RESET.path" "$GPU_RESET.service"
  if [ -n "$token_needed" ]; then
    say 'longshore-agent: to join an installation: echo TOKEN | sudo longshore-agent join --scheduler HOST:PORT'
  elif [ -e "$LEFT_ALONE" ]; then
    say 'longshore-agent: not started, because its service is disabled'
  elif start_agent; then
    :
  elif engine_is_away; then
    # A missing engine is no fault of the package, which is complete. The drain unit waits for the host to go down.
    systemctl start "$DRAIN" || true
    say "longshore-agent: $(engine_words)" >&2
  else
    journal_tail
    fail 'the agent does not start: the lines above say why. Its containers go on. Back: `apt install --allow-downgrades ./` and the package before'
  fi
  rm -f "$LEFT_ALONE"
}

do_end() {
  has_systemd || return 0
  end_work
  end_units
  forget_token
}

has_systemd() { [ -d /run/systemd/system ]; }

command=${1:-}
case "$command" in
  join | reset | status | configure | end) shift ;;
  -h | --help | help) usage; exit 0 ;;
  install | rollback | uninstall) fail 'this agent is a Debian package: apt installs, upgrades and removes it' ;;
  *) usage >&2; exit 2 ;;
esac
scheduler='' purge='' no_start=''
while [ $# -gt 0 ]; do
  case "$1" in
    --scheduler) [ $# -ge 2 ] || fail "$1 needs a value"; scheduler=$2; shift 2 ;;
    --purge) purge=yes; shift ;;
    lsj1.* | lse1.*) fail 'a join token is no argument: every user could read it in the list of processes. Give it on standard input' ;;
    *) usage >&2; fail "there is no option $1" ;;
  esac
done
[ "$(id -u)" = 0 ] || fail 'run it as root (sudo)'
"do_$command"
