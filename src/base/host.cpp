#include "base/host.h"

#include <unistd.h>

#include <fstream>

namespace muster {

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return *name ? name : "?";
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string host_identity(const std::string& hostid_override) {
  return hostid_override.empty() ? host_name() + "/" + boot_id() : "id:" + hostid_override;
}

}  // namespace muster
