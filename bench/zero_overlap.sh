#!/bin/bash
# bench/zero_overlap.sh PROGRAM MBIT [ARGUMENT...]: zero_overlap on two hosts, which are network namespaces joined by
# a link of MBIT/s, so that communication takes time rather than cores. Needs root, ip and tc.
set -eu
program=$1 rate=$2
shift 2
hosts=(muster-overlap-$$-0 muster-overlap-$$-1)
ranks=()
cleanup() {
  for pid in "${ranks[@]}"; do kill "$pid" 2>/dev/null || true; done
  for host in "${hosts[@]}"; do ip netns delete "$host" 2>/dev/null || true; done
}
trap cleanup EXIT
for host in "${hosts[@]}"; do ip netns add "$host"; done
ip -n "${hosts[0]}" link add rail0 type veth peer name rail0 netns "${hosts[1]}"
for i in 0 1; do
  ip -n "${hosts[i]}" address add 10.77.0.$((i + 1))/24 dev rail0
  ip -n "${hosts[i]}" link set lo up
  ip -n "${hosts[i]}" link set rail0 up
  tc -n "${hosts[i]}" qdisc add dev rail0 root tbf rate "${rate}mbit" burst 256k latency 50ms
done
for host in "${hosts[@]}"; do
  until ip -n "$host" link show rail0 | grep -q LOWER_UP; do sleep 0.05; done
done
for i in 0 1; do
  RANK=$i WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.77.0.1 MASTER_PORT=29577 NCCL_HOSTID=host$i \
    ip netns exec "${hosts[i]}" "$program" "$@" &
  ranks+=($!)
done
for pid in "${ranks[@]}"; do wait "$pid"; done
ranks=()
