#include "comm/host_topology.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "topology/detect.h"
#include "topology/file.h"
#include "topology/merge.h"
#include "topology/nccl_xml.h"
#include "topology/read.h"

namespace muster {
namespace {

// Where NVIDIA's topology daemon leaves it in virtual machines.
constexpr const char* kDaemonsFile = "/var/run/nvidia-topologyd/virtualTopology.xml";

const topology::Machine& seen() {
  static const topology::Machine* const m = [] {  // never deleted: threads in the background outlive static objects
    topology::DetectOptions options;
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) options.visible_gpus = visible;  // NOLINT(concurrency-mt-unsafe)
    return new topology::Machine(topology::detect(options));
  }();
  return *m;
}

void write_file(const std::string& path, std::string_view text) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file) fail_errno(errno, fmt::format("can't write {}", path));
  while (!text.empty()) {
    const ssize_t n = write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(errno, fmt::format("can't write {}", path));
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

topology::Machine host_topology(const Options& options) {
  std::string path = options.text("NCCL_TOPO_FILE");
  if (path.empty() && access(kDaemonsFile, R_OK) == 0) path = kDaemonsFile;
  if (path.empty()) return seen();
  // A cluster's settings reach hosts that have no such file; NCCL goes on there, too.
  if (access(path.c_str(), F_OK) != 0 && errno == ENOENT) {
    log_warn("NCCL_TOPO_FILE: there is no {}: what the system says is taken alone", path);
    return seen();
  }
  const topology::Cluster file = topology::read_topology(topology::load_file(path), path);
  if (file.host_count() != 1)
    fail(Result::invalid_argument, "{} describes {} hosts, and NCCL_TOPO_FILE names a file of one: this host's. Give each host its own part",
         path, file.host_count());
  return topology::merge(file.machine_of(0), seen(), path);
}

void dump_topology(const Options& options, int rank) {
  const std::string path = options.text("NCCL_TOPO_DUMP_FILE");
  if (path.empty() || rank != options.integer("NCCL_TOPO_DUMP_FILE_RANK")) return;
  try {
    write_file(path, topology::write_nccl_xml(host_topology(options)));
    log_info(Topic::graph, "rank {} wrote its host's topology to {}", rank, path);
  } catch (const Error& e) {
    log_warn("NCCL_TOPO_DUMP_FILE: {}", e.what());
  }
}

}  // namespace muster
