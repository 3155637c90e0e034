#include "base/memory_file.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "base/error.h"

namespace muster {

Fd create_memory_file(const char* name, std::string_view what, size_t bytes) {
  Fd fd(memfd_create(name, MFD_CLOEXEC));
  if (!fd) fail_errno(errno, fmt::format("creating {} (memfd_create)", what), "Check the limit on open files (ulimit -n)");
  // Growing a file past this limit doesn't fail, it ends the process with SIGXFSZ.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
    fail(Result::system_error, "{} takes a file of {} bytes (sparse), and the file size limit is {}. Raise it (ulimit -f)", what, bytes,
         static_cast<size_t>(limit.rlim_cur));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fail_errno(errno, fmt::format("sizing {} to {} bytes (sparse)", what, bytes));
  return fd;
}

}  // namespace muster
