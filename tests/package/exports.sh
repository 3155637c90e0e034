#!/bin/sh
# exports.sh LIBMUSTER_SO HEADER...
# The library shows the public interface and nothing else: every defined dynamic symbol is in namespace muster, or is
# one of muster.h's C functions, and named in a header (or belongs to the exception's type information), and what every
# program needs is there.
set -eu
library=$1
shift
symbols=$(nm -DC --defined-only "$library" | cut -d' ' -f3-)
status=0
words=$(cat "$@" | tr -c 'A-Za-z0-9_~=' '\n' | sort -u)
echo "$symbols" | while read -r symbol; do
  case $symbol in
    "typeinfo for muster::Error" | "typeinfo name for muster::Error" | "vtable for muster::Error") continue ;;
    muster::*"::Impl::"*) echo "shown but inside: $symbol"; exit 1 ;;
    muster::nccl::*)  # what libnccl.so.2 calls: ncclX goes on to muster::nccl::X
      name=${symbol%%(*}
      symbol=nccl${name##*::}
      ;;
    muster[A-Z]*) ;;  # muster.h's, without namespace
    muster::*) ;;
    "void muster::"*"<"*) symbol=${symbol%%<*} ;;  # of a template
    *) echo "shown but not Muster's interface: $symbol"; exit 1 ;;
  esac
  name=${symbol%%[[(]*}
  name=${name##*::}
  case $name in operator* | '~'*) continue ;; esac
  echo "$words" | grep -qxF "$name" || { echo "shown but in no public header: $symbol"; exit 1; }
done || status=1
for needed in 'muster::version()' 'muster::make_unique_id()' 'muster::group_start()' 'muster::mem_alloc(unsigned long)' \
  'void muster::ExpertParallel::dispatch<float>(' 'void muster::VocabularyParallel::cross_entropy<double>(' \
  'muster::Communicator::barrier(muster::HostStream*)' 'muster::HostStream::synchronize()' 'typeinfo for muster::Error'; do
  echo "$symbols" | grep -qF "$needed" || { echo "not shown: $needed"; status=1; }
done
exit $status
