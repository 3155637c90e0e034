#include "device/cuda/driver.h"

#include "base/error.h"
#include "base/shared_library.h"

namespace muster::cuda {
namespace {

constexpr int kVersion = 12000;  // of the functions: the first that has cuGetProcAddress_v2

const char* remedy_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ". Free GPU memory, or use smaller buffers (NCCL_BUFFSIZE)";
    case CUDA_ERROR_NOT_PERMITTED:
      return ". Fabric handles need an IMEX channel (/dev/nvidia-caps-imex-channels) that this process may open";
    case CUDA_ERROR_NOT_SUPPORTED:
      return ". NCCL_CUMEM_ENABLE=0 does without the driver's virtual memory management";
    default:
      return "";
  }
}

Driver load() {
  Driver d;
  static const SharedLibrary library("libcuda.so.1");
  if (!library) {
    d.why_none = "libcuda.so.1, the NVIDIA driver's library, isn't found: install the driver, or put it into LD_LIBRARY_PATH";
    return d;
  }
  const auto find = library.function<decltype(::cuGetProcAddress_v2)>("cuGetProcAddress_v2");
  if (!find) {
    d.why_none = "libcuda.so.1 is older than CUDA 12.0: update the NVIDIA driver";
    return d;
  }
  const auto get = [&]<class F>(F& function, const char* name) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult how{};
    if (find(name, &found, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, &how) == CUDA_SUCCESS && found)
      function = reinterpret_cast<F>(found);
    else if (d.why_none.empty())
      d.why_none = fmt::format("libcuda.so.1 has no {}: update the NVIDIA driver", name);
  };
#define MUSTER_DRIVER_GET(name) get(d.name, #name);
  MUSTER_DRIVER_FUNCTIONS(MUSTER_DRIVER_GET)
#undef MUSTER_DRIVER_GET
  if (!d.why_none.empty()) return d;
  if (const CUresult result = d.cuInit(0); result != CUDA_SUCCESS)
    d.why_none = fmt::format("the NVIDIA driver doesn't start: error {} of cuInit. Look at nvidia-smi", static_cast<int>(result));
  return d;
}

}  // namespace

const Driver& driver() {
  static const Driver found = load();
  return found;
}

void fail_driver(CUresult result, const std::string& what) {
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(result, &name);
  driver().cuGetErrorString(result, &text);
  fail(Result::unhandled_device_error, "{}: {} ({}){}", what, name ? name : std::to_string(result), text ? text : "unknown to the driver",
       remedy_of(result));
}

}  // namespace muster::cuda
