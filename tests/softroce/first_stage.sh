#!/bin/busybox sh
# First program of the VM: loads the modules, mounts the host's root below a RAM overlay and hands over to
# second_stage.sh. Runs under busybox sh, from RAM.
bb=/bin/busybox
fail() { echo "softroce-vm: stage 1: $*"; $bb poweroff -f; $bb sleep 60; }
load() {
    while read -r m; do
        $bb insmod "/modules/$m" || echo "softroce-vm: module $m did not load"
    done < "/modules/$1"
}
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs dev /dev
load list.base
load list.rdma & rdma=$!
o=ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose
$bb mount -t 9p -o $o softroce-root /lower || fail 'cannot mount the root share'
$bb mount -t 9p -o $o softroce-job  /job   || fail 'cannot mount the job share'
$bb mount -t tmpfs -o size=75%,mode=755 tmpfs /upper
$bb mkdir /upper/data /upper/work
$bb mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work \
    overlay /newroot || fail 'cannot mount the overlay'
n=/newroot
$bb mkdir -p $n/proc $n/sys $n/dev $n/run $n/tmp /dev/shm /dev/pts /dev/hugepages
$bb mount -t tmpfs -o mode=755 tmpfs $n/run
$bb mount -t tmpfs -o mode=1777 tmpfs /dev/shm
$bb mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
$bb mount -t hugetlbfs hugetlbfs /dev/hugepages
$bb ln -s /proc/self/fd /dev/fd
for i in 0=stdin 1=stdout 2=stderr; do $bb ln -s fd/${i%=*} /dev/${i#*=}; done
$bb mkdir -p $n/run/lock $n/run/netns $n/run/softroce/job $n/run/softroce/bin
$bb chmod 1777 $n/run/lock
$bb cp /bin/busybox $n/run/softroce/busybox
$bb mount --move /job $n/run/softroce/job
wait $rdma
for d in proc sys dev; do $bb mount --move /$d $n/$d; done
exec $bb switch_root $n /bin/bash /run/softroce/job/stage2
