#include "base/open_files.h"

#include <dirent.h>
#include <sys/resource.h>

#include <memory>

#include "base/log.h"

namespace muster {
namespace {

size_t count_open_files() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  size_t n = 0;
  while (folder && readdir(folder.get())) ++n;
  return n;
}

}  // namespace

void make_room_for_open_files(size_t more) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max || limit.rlim_cur == RLIM_INFINITY) return;
  const size_t wanted = count_open_files() + more;
  if (wanted <= limit.rlim_cur) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
    log_info(Topic::init, "the soft limit on open files is raised from {} to {}, the hard limit (ulimit -n, ulimit -Hn): {} may be wanted", before,
             limit.rlim_max, wanted);
}

}  // namespace muster
