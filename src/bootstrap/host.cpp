#include "bootstrap/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/host.h"
#include "base/math.h"

namespace muster {

Host this_host() {
  Host r;
  r.name = host_name();
  r.pid = getpid();

  const std::string boot = boot_id();
  struct stat net {};
  const uint64_t ns = stat("/proc/self/ns/net", &net) == 0 ? static_cast<uint64_t>(net.st_ino) : 0;
  for (const char c : boot.empty() ? r.name : boot)
    r.place = hash_combine(r.place, static_cast<unsigned char>(c));
  r.place = hash_combine(r.place, ns);
  return r;
}

}  // namespace muster
