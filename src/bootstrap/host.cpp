#include "bootstrap/host.h"

#include <unistd.h>

#include "base/host.h"
#include "base/math.h"

namespace muster {

Host this_host() {
  Host r;
  r.name = host_name();
  r.pid = getpid();

  for (const std::string& part : {machine_identity(), network_namespace()})
    for (const char c : part) r.place = hash_combine(r.place, static_cast<unsigned char>(c));
  return r;
}

}  // namespace muster
