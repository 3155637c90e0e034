#!/bin/sh
# bundle.sh ARCHIVE: proves that a bundle needs nothing: of each file in it, that it finds its libraries in the bundle or among glibc's and
# GCC's, no newer than Debian 12's, and that each carried library has its licence; then runs it in a bare Debian 12 (debootstrap
# makes one; skipped without it, or without root).
set -eu
archive=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xzf "$archive" -C "$work"
bundle=$(echo "$work"/muster-*)

echo "== what each file needs"
find "$bundle" -type f \( -perm -100 -o -name '*.so*' \) | while read -r file; do
  readelf -h "$file" >/dev/null 2>&1 || continue
  for needed in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $needed in libc.so.6 | libm.so.6 | libgcc_s.so.1 | libstdc++.so.6 | ld-linux-x86-64.so.2) continue ;; esac
    [ -e "$bundle/lib/$needed" ] || { echo "$file needs $needed, which isn't in the bundle"; exit 1; }
  done
  case $(readelf -d "$file" | sed -n 's/.*(R.*PATH).*\[\(.*\)\]/\1/p') in
    "" | '$ORIGIN' | '$ORIGIN/../lib') ;;
    *) echo "$file looks for libraries elsewhere: $(readelf -d "$file" | grep PATH)"; exit 1 ;;
  esac
  newest() { readelf -V "$file" | grep -o "$1_[0-9.]*" | sort -Vu | tail -n 1; }
  for version in "$(newest GLIBC) GLIBC_2.36" "$(newest GLIBCXX) GLIBCXX_3.4.30"; do
    # shellcheck disable=SC2086
    set -- $version
    [ $# = 1 ] || [ "$(printf '%s\n' "$1" "$2" | sort -V | tail -n 1)" = "$2" ] || { echo "$file needs $1, newer than $2"; exit 1; }
  done
done
for file in "$bundle"/lib/*.so.*; do
  name=$(basename "$file" | sed 's/^lib\([a-z]*\).*/\1/')
  case $name in muster | nccl) continue ;; esac
  ls "$bundle"/share/licences/lib"$name"-dev >/dev/null
done
echo "$(find "$bundle" -type f | wc -l) files, $(du -sm "$bundle" | cut -f 1) MiB"

command -v debootstrap >/dev/null || { echo "== skipped: a bare Debian 12 needs debootstrap"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "== skipped: a bare Debian 12 needs root"; exit 0; }
echo "== in a bare Debian 12"
debootstrap --variant=minbase bookworm "$work/root" >"$work/debootstrap.log" 2>&1 || { tail -n 3 "$work/debootstrap.log"; echo "== skipped: debootstrap failed"; exit 0; }
mv "$bundle" "$work/root/opt/muster"
cat >"$work/root/try.sh" <<'END'
set -eu
cd /opt/muster
for file in bin/* gpu/gpu_check lib/*.so; do
  [ -e "$file" ] || continue
  if ldd "$file" | grep 'not found'; then echo "$file lacks libraries"; exit 1; fi
done
bin/muster version
bin/muster doctor >doctor.txt || [ $? = 1 ]  # it may find fault with the machine
bin/muster run -n 2 bin/all_reduce_perf -b 8 -e 1M -f 16 -n 5 -w 1 >perf.txt
grep -E '^# |^ +[0-9]+ ' perf.txt | tail -n 4
bin/muster topo >topo.txt
if [ -e gpu/run.sh ]; then
  gpu/run.sh && status=0 || status=$?
  [ $status = 0 ] || [ $status = 77 ] || exit $status
fi
END
unshare --mount --pid --fork sh -c 'mount -t proc proc "$1/proc" && mount --bind /dev "$1/dev" && exec chroot "$1" sh /try.sh' sh "$work/root"
echo "== the bundle runs there"
