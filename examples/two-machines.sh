#!/usr/bin/env bash
# Runs a command on two machines that one machine plays: two network namespaces, m1 and m2, with a link of RATE
# between them. Needs root, iproute2 and Open MPI.
#
#   examples/two-machines.sh RATE COMMAND…
#   examples/two-machines.sh 200mbit build/mantissa doctor --json
set -euo pipefail
(($# >= 2)) || { sed -n '2,6s/^# \?//p' "$0" >&2; exit 2; }
rate=$1
shift

work=$(mktemp -d)
clean() {
  ip netns del m1 2>/dev/null || true
  ip netns del m2 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT

for i in 1 2; do ip netns add "m$i"; done
ip link add veth1 netns m1 type veth peer name veth2 netns m2
for i in 1 2; do
  ip -n "m$i" addr add "10.77.0.$i/24" dev "veth$i"
  ip -n "m$i" link set lo up
  ip -n "m$i" link set "veth$i" up
  tc -n "m$i" qdisc add dev "veth$i" root tbf rate "$rate" burst 256kb latency 50ms
done

# In place of ssh: the launcher gives a host and a command.
cat >"$work/agent" <<'AGENT'
#!/bin/sh
host=$1
shift
exec ip netns exec "m${host##*.}" sh -c "$*"
AGENT
chmod +x "$work/agent"

exec_in_m1=(ip netns exec m1 mpirun.openmpi --mca plm_rsh_agent "$work/agent" --mca btl tcp,self
  --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 --host 10.77.0.1,10.77.0.2 -n 2)
((EUID != 0)) || exec_in_m1+=(--allow-run-as-root)
"${exec_in_m1[@]}" "$@"
