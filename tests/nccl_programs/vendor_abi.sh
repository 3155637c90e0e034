#!/bin/sh
# vendor_abi.sh OUR_INCLUDE LIBNCCL_SO ABI_DUMP_CPP
# Compares our nccl.h with NVIDIA's, where that is installed: what programs compiled with NVIDIA's rely on is in ours, too, and
# each name that NVIDIA's library shows is shown by ours. Ends with 77 where NVIDIA's isn't installed. Uses CXX.
set -eu
ours=$1 library=$2 source=$3
vendor=
for header in /usr/local/cuda/include/nccl.h /usr/local/cuda-*/include/nccl.h /usr/local/include/nccl.h /usr/include/nccl.h; do
  if [ -f "$header" ] && grep -q 'NVIDIA CORPORATION' "$header"; then
    vendor=$(dirname "$header")
    break
  fi
done
[ -n "$vendor" ] || { echo "NVIDIA's nccl.h is not installed: nothing to compare with"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dump() {
  ${CXX:-c++} -std=c++17 -I"$1" "$source" -fsyntax-only 2>"$work/errors" || { cat "$work/errors"; exit 1; }
  # Only addresses are taken, in decltype: nothing is linked.
  ${CXX:-c++} -std=c++17 -I"$1" "$source" -o "$work/dump"
  "$work/dump" | sed -E 's/ncclConfig_(v[0-9]+|st)/ncclConfig_t/g; s/ncclSimInfo_(v[0-9]+|st)/ncclSimInfo_t/g' | sort -u
}
dump "$vendor" >"$work/vendor"
dump "$ours" >"$work/ours"
test -s "$work/vendor"
comm -23 "$work/vendor" "$work/ours" >"$work/differences"
if [ -s "$work/differences" ]; then
  echo "NVIDIA's header ($vendor) says, and ours doesn't:"
  cat "$work/differences"
  exit 1
fi
echo "$(wc -l <"$work/vendor") facts of $vendor/nccl.h are the same in ours"
for vendor_library in "$vendor"/../lib/libnccl.so.2 "$vendor"/../lib64/libnccl.so.2 /usr/lib/x86_64-linux-gnu/libnccl.so.2; do
  [ -f "$vendor_library" ] || continue
  nm -D --defined-only "$vendor_library" | awk '{print $3}' | sort >"$work/vendor"
  nm -D --defined-only "$library" | awk '{print $3}' | sort >"$work/ours"
  comm -23 "$work/vendor" "$work/ours" >"$work/differences"
  [ ! -s "$work/differences" ] || { echo "$vendor_library shows, and ours doesn't:"; cat "$work/differences"; exit 1; }
  echo "$(wc -l <"$work/vendor") names of $vendor_library are in ours"
  break
done
