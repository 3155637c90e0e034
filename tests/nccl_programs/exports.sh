#!/bin/sh
# exports.sh LIBNCCL_SO NCCL_MAP NCCL_H LIBMUSTER_SO MUSTER_H
# libnccl.so.2 shows the names of its version script and no others, ncclX weak and pncclX strong; all are declared in nccl.h;
# its soname is libnccl.so.2. libmuster.so shows what muster.h declares.
set -eu
library=$1 map=$2 header=$3 muster=$4 muster_header=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }

nm -D --defined-only "$library" | awk '{print $3}' | sort >"$work/shown"
grep -oE '^ +p?nccl[A-Za-z0-9]+;' "$map" | tr -d ' ;' | sort >"$work/wanted"
diff "$work/wanted" "$work/shown" || fail "< is in $map, > is shown by $library"
nm -D --defined-only "$library" | awk '$2 == "W" {print $3}' | sort >"$work/weak"
grep '^nccl' "$work/wanted" | grep -v 'ResetDebugInitInternal$' >"$work/wanted_weak"
diff "$work/wanted_weak" "$work/weak" || fail "< should be weak, > is"

for name in $(sed 's/^pnccl/nccl/' "$work/wanted" | sort -u); do
  grep -qE "[ *]$name\(" "$header" || fail "$name is shown, but not declared in $header"
done
for name in $(grep -oE '^(ncclResult_t|const char\*|void|int|ncclTeam_t) nccl[A-Za-z0-9]+\(' "$header" | grep -oE 'nccl[A-Za-z0-9]+\($' | tr -d '('); do
  grep -qx "$name" "$work/wanted" || fail "$name is declared in $header, but not shown"
done

readelf -d "$library" | grep -q 'SONAME.*\[libnccl\.so\.2\]' || fail "the soname isn't libnccl.so.2"
! readelf --version-info "$library" | grep -q 'Version definition section' || fail "names have versions; NCCL's have none"

nm -D --defined-only "$muster" | awk '{print $3}' | grep '^muster[A-Z]' | sort >"$work/shown"
grep -oE '\bmuster[A-Z][A-Za-z0-9]*\(' "$muster_header" | tr -d '(' | sort -u >"$work/wanted"
diff "$work/wanted" "$work/shown" || fail "< is declared in $muster_header, > is shown by $muster"
