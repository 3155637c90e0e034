// The limit on a process's open files (RLIMIT_NOFILE).
#pragma once

#include <cstddef>

namespace muster {

// `more` descriptors are about to be wanted beside those that are open. Where the soft limit doesn't allow that it is raised to the
// hard limit, which a process may always do, and the log says so at INFO; servers do the same. It stays as it is where it is
// enough: programs that use select() can't have descriptors above 1023. Any thread, at any time.
void make_room_for_open_files(size_t more);

}  // namespace muster
