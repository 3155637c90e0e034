#include "base/host.h"

#include <sys/stat.h>
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

std::string network_namespace() {
  struct stat net {};
  return stat("/proc/self/ns/net", &net) == 0 ? std::to_string(net.st_ino) : "";
}

std::string host_identity(const std::string& hostid_override) {
  return hostid_override.empty() ? host_name() + "/" + boot_id() + "/" + network_namespace() : "id:" + hostid_override;
}

std::string machine_identity() {
  const std::string boot = boot_id();
  return boot.empty() ? host_name() : boot;
}

}  // namespace muster
