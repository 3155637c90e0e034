// The container in which nvcc embeds a translation unit's PTX. Layout as seen in objects of CUDA 12 and 13.
#include <dlfcn.h>

#include <cstdio>

#include "modules.h"

namespace cuda_sim {
namespace {

constexpr uint32_t kMagic = 0xBA55ED50;
constexpr uint16_t kPtx = 1;
constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;

template <class T>
T at(const unsigned char* p, size_t offset) {
  T value;
  memcpy(&value, p + offset, sizeof value);
  return value;
}

struct Entry {
  const unsigned char* begin;
  uint16_t kind() const { return at<uint16_t>(begin, 0); }
  uint32_t header_size() const { return at<uint32_t>(begin, 4); }
  uint64_t size() const { return at<uint64_t>(begin, 8); }
  uint32_t compressed_size() const { return at<uint32_t>(begin, 16); }
  int architecture() const { return at<int>(begin, 28); }
  uint64_t flags() const { return at<uint64_t>(begin, 40); }
  uint64_t uncompressed_size() const { return at<uint64_t>(begin, 56); }
  const char* body() const { return reinterpret_cast<const char*>(begin) + header_size(); }
};
constexpr ptrdiff_t kEntryHeader = 64;

bool decompress(const Entry& e, std::string* out) {
  using Decompress = size_t (*)(void*, size_t, const void*, size_t);
  static void* library = dlopen("libzstd.so.1", RTLD_NOW);
  static auto decompress =
      library ? reinterpret_cast<Decompress>(dlsym(library, "ZSTD_decompress")) : nullptr;
  if (!decompress) {
    fprintf(stderr,
            "cuda_sim: libzstd.so.1 is needed for compressed PTX, or nvcc's option -Xfatbin -no-compress\n");
    return false;
  }
  out->resize(e.uncompressed_size());
  if (decompress(out->data(), out->size(), e.body(), e.compressed_size()) == out->size()) return true;
  fprintf(stderr, "cuda_sim: the PTX of a fat binary can't be decompressed\n");
  return false;
}

}  // namespace

bool extract_ptx(const unsigned char* fat_binary, std::string* ptx) {
  if (at<uint32_t>(fat_binary, 0) != kMagic) {
    fprintf(stderr, "cuda_sim: a registered fat binary isn't one\n");
    return false;
  }
  const unsigned char* p = fat_binary + at<uint16_t>(fat_binary, 6);
  const unsigned char* end = p + at<uint64_t>(fat_binary, 8);
  int newest = static_cast<int>(option("CUDASIM_CC", 90)), best_architecture = -1;
  Entry best{};
  std::string others;
  for (; end - p >= kEntryHeader; p += Entry{p}.header_size() + Entry{p}.size()) {
    Entry e{p};
    others += (e.kind() == kPtx ? " PTX " : " machine code ") + std::to_string(e.architecture());
    if (e.kind() != kPtx || e.architecture() > newest || e.architecture() <= best_architecture) continue;
    best = e;
    best_architecture = e.architecture();
  }
  if (best_architecture < 0) {
    fprintf(stderr,
            "cuda_sim: a fat binary holds no PTX for compute capability %d or older, only:%s; nvcc's option "
            "-gencode arch=compute_90,code=compute_90 adds it\n",
            newest, others.c_str());
    return false;
  }
  if (best.flags() & kLz4) {
    fprintf(stderr,
            "cuda_sim: PTX compressed by LZ4 is not simulated; nvcc's option -Xfatbin -no-compress helps\n");
    return false;
  }
  if (!(best.flags() & kZstd))
    ptx->assign(best.body(), best.size());
  else if (!decompress(best, ptx))
    return false;
  while (!ptx->empty() && ptx->back() == '\0') ptx->pop_back();
  return true;
}

}  // namespace cuda_sim
