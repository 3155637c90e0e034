# Process 1 of the VM once the root is mounted; bash from the host's files. Makes the network, the RDMA devices and the
# helpers, runs the command, and ends the VM.
exec </dev/null
J=/run/softroce/job B=/run/softroce/bin bb=/run/softroce/busybox
. $J/settings
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
stop() { $bb sync; $bb poweroff -f; $bb sleep 60; }
fail() { echo "softroce-vm: stage 2: $*"; echo "fail $*" >&5; stop; }
mark() { local t; read -r t _ </proc/uptime; echo "$* $t" >&5; }
put()  { echo "$2" >"/proc/sys/$1"; }
exec 5>/dev/vport0p3 || fail 'no control port'
mark up
i=0
while IFS= read -r -d '' d; do
    $bb mkdir -p "$d"
    $bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=mmap \
        "softroce-rw$i" "$d" || fail "cannot mount $d"
    i=$((i + 1))
done <$J/rw
ulimit -l unlimited; ulimit -c 0; ulimit -n 65536
put kernel/hostname softroce

# -- the switch, the cables, the RDMA devices. Each process is costly under tcg,
#    hence "ip -batch".
{   printf '127.0.0.1\tlocalhost softroce\n::1\tlocalhost\n'
    for ((i = 0; i < NICS; i++)); do
        printf '%s.%d\troce%d\n' $SUBNET $((i + 1)) $i
        ((NETNS)) && printf '%s.%d\th%d\n' $HOSTNET $((i + 1)) $i
    done; } >/etc/hosts.softroce && $bb mv /etc/hosts.softroce /etc/hosts
for c in all default; do
    put net/ipv4/conf/$c/rp_filter 0
    put net/ipv4/conf/$c/accept_local 1    # own address as source: not a martian
    put net/ipv4/conf/$c/arp_ignore 1      # answer only for the port's own address
    put net/ipv4/conf/$c/arp_announce 2
    put net/ipv6/conf/$c/accept_dad 0      # link-local address usable at once
done
mac() { printf '02:00:0a:4d:00:%02x' $(($1 + 1)); }
ip netns add switch || fail 'no network namespaces'
for ((i = 0; i < NICS; i++)); do
    me=$SUBNET.$((i + 1)) t=$((100 + i))
    # The kernel defers link changes by up to 1 s where both ends of a veth have
    # the same index in their namespaces: choose one that differs.
    echo "link add roce$i index $((100 + i)) address $(mac $i) mtu 4200" \
        "type veth peer name port$i mtu 4200 netns switch"
    echo "link set roce$i up"
    echo "addr add $me/24 dev roce$i noprefixroute"
    # To oneself: local. From roceI to any other: out of roceI.
    echo "route add $SUBNET.0/24 dev roce$i src $me table $t"
    echo "rule add pref 10 iif roce$i lookup local"
    echo "rule add pref 20 from $me to $me lookup local"
    echo "rule add pref 30 from $me to $SUBNET.0/24 lookup $t"
    # Known neighbours: no ARP, hence no start-up losses. (Lost when a roceI is
    # itself set down; "roce-link I down" acts at the switch and loses nothing.)
    for ((k = 0; k < NICS; k++)); do ((i == k)) ||
        echo "neigh replace $SUBNET.$((k + 1)) dev roce$i nud permanent lladdr $(mac $k)"
    done
done >/run/softroce/batch.main
{   echo "link set lo up"
    echo "route add $SUBNET.0/24 dev roce0"
    echo "rule add pref 100 lookup local"
    echo "rule del pref 0"
} >>/run/softroce/batch.main
{   echo "link add br0 mtu 4200 type bridge forward_delay 0 stp_state 0 mcast_snooping 0"
    echo "link set br0 addrgenmode none"
    echo "link set br0 up"
    for ((i = 0; i < NICS; i++)); do
        echo "link set port$i addrgenmode none"
        echo "link set port$i master br0"
        echo "link set port$i up"
    done
} >/run/softroce/batch.switch
ip -batch /run/softroce/batch.main || fail 'cannot set up the roce interfaces'
ip -n switch -batch /run/softroce/batch.switch || fail 'cannot set up the switch'
for ((i = 0; i < NICS; i++)); do
    rdma link add rxe$i type rxe netdev roce$i || fail "cannot add rxe$i"
done

# -- the simulated hosts
if ((NETNS)); then
    {   echo "link add br1 type bridge forward_delay 0 stp_state 0 mcast_snooping 0"
        echo "link set br1 addrgenmode none"
        echo "link set br1 up"
    } | ip -n switch -batch - || fail 'cannot set up the second bridge'
    for ((i = 0; i < NICS; i++)); do
        ip netns add h$i &&
        {   echo "link add eth0 index $((200 + i)) type veth peer name host$i netns switch"
            echo "link set lo up"
            echo "link set eth0 up"
            echo "addr add $HOSTNET.$((i + 1))/24 dev eth0"
        } | ip -n h$i -batch - || fail "cannot set up h$i"
    done
    for ((i = 0; i < NICS; i++)); do
        echo "link set host$i addrgenmode none"
        echo "link set host$i master br1"
        echo "link set host$i up"
    done | ip -n switch -batch - || fail 'cannot plug in the hosts'
fi

# -- helpers
cat >$B/roce-host <<'X'
#!/bin/bash
# roce-host I CMD...: run CMD in network namespace hI under the host name hI
i=$1; shift
exec ip netns exec "h$i" unshare --uts -- /bin/bash -c \
    'echo "$0" >/proc/sys/kernel/hostname; exec "$@"' "h$i" "$@"
X
cat >$B/roce-link <<'X'
#!/bin/bash
# roce-link I down|up: pull or plug the cable of rxeI
exec ip -n switch link set "port$1" "$2"
X
cat >$B/roce-netem <<'X'
#!/bin/bash
# roce-netem I ARGS...|off: tc netem in both directions of the cable of rxeI
i=$1; shift
for end in "" "-n switch"; do
    [ -n "$end" ] && dev=port$i || dev=roce$i
    if [ "$*" = off ]; then tc $end qdisc del dev $dev root 2>/dev/null
    else tc $end qdisc replace dev $dev root netem limit 100000 "$@" || exit; fi
done
exit 0
X
cat >$B/roce-gid <<'X'
#!/bin/bash
# roce-gid I [4|6]: the GID index of the IPv4-mapped (link-local IPv6) address
[ "${2:-4}" = 4 ] && want=0000:0000:0000:0000:0000:ffff: || want=fe80:
for f in /sys/class/infiniband/rxe$1/ports/1/gids/*; do
    read -r g <"$f"
    case $g in "$want"*) echo "${f##*/}"; exit 0;; esac
done
exit 1
X
$bb chmod 755 $B/*

# -- wait until every port is up and has its IPv4 GID
port_ready() {
    local p=/sys/class/infiniband/rxe$1/ports/1 g
    read -r g 2>/dev/null <$p/state && [[ $g == *ACTIVE* ]] || return 1
    for k in 0 1 2 3; do
        read -r g 2>/dev/null <$p/gids/$k && [[ $g == 0000:0000:0000:0000:0000:ffff:* ]] && return 0
    done
    return 1
}
for ((i = 0; i < NICS; i++)); do
    for ((t = 0; t < 500; t++)); do port_ready $i && break; $bb usleep 20000; done
    ((t < 500)) || fail "rxe$i did not become active"
done
# ... and every port of the switch forwards (state 3), lest first packets be lost.
ip netns exec switch $bb sh -c '
    n=0
    for p in /sys/class/net/*/brport/state; do
        until read -r s <$p && [ $s = 3 ]; do
            n=$((n + 1)); [ $n -lt 500 ] || exit 1; '$bb' usleep 20000
        done
    done' || fail 'the switch does not forward'

# -- the command, its output through pipes to the two output ports (a port can
#    be opened only once, a pipe also through /dev/stdout)
mapfile -d '' -t E <$J/env; mapfile -d '' -t A <$J/argv
P=$PATH
# UCX 1.13 drops every ud_verbs packet on rxe with an IPv4 GID unless told not
# to check the destination GID; then rc_verbs cannot connect either. (UCX warns
# of UCX_ variables that the chosen transports do not use.)
U=(UCX_UD_VERBS_ETH_DGID_CHECK=n UCX_WARN_UNUSED_ENV_VARS=n)
for e in "${E[@]}"; do
    case $e in
        PATH=*) P=${e#PATH=} ;;
        UCX_UD_VERBS_ETH_DGID_CHECK=*) U=() ;;
    esac
done
$bb mkfifo /run/softroce/out /run/softroce/err
$bb cat </run/softroce/out >/dev/vport0p1 & c1=$!
$bb cat </run/softroce/err >/dev/vport0p2 & c2=$!
mark run
(   exec 5>&- >/run/softroce/out 2>/run/softroce/err
    cd "$CHDIR" || exit 125
    exec env -i "${U[@]}" "${E[@]}" "PATH=$B:$P" "PWD=$CHDIR" SOFTROCE_VM=1 SOFTROCE_NICS=$NICS \
        SOFTROCE_NETNS=$NETNS SOFTROCE_ACCEL=$ACCEL "${A[@]}"
) &
wait $!; rc=$?
# Let the output drain; do not wait for ever for background processes it left.
(   for ((t = 0; t < 100; t++)); do
        [[ -d /proc/$c1 || -d /proc/$c2 ]] || exit
        $bb usleep 20000
    done; kill $c1 $c2 ) 2>/dev/null &
wait $c1 $c2 2>/dev/null
mark rc $rc
stop
