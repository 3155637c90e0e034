// What launchers say in the environment. A line of the input is a variable's number and its value.
#include <iterator>
#include <map>

#include "bootstrap/launcher.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

namespace {

constexpr const char* kNames[] = {"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "TORCHELASTIC_RUN_ID",
                                  "TORCHELASTIC_RESTART_COUNT",
                                  "MUSTER_JOB_KEY",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "PMIX_NAMESPACE",
                                  "OMPI_MCA_ess_base_jobid",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "SLURM_PROCID",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_STEP_NUM_NODES",
                                  "SLURM_NNODES",
                                  "SLURM_JOB_NUM_NODES",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "SLURM_LAUNCH_NODE_IPADDR",
                                  "SLURM_STEP_NODELIST",
                                  "OMPI_MCA_orte_hnp_uri",
                                  "OMPI_MCA_orte_node_regex"};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::map<std::string, std::string> variables;
  for (Input in(data, size); !in.empty();) {
    const std::string_view text = in.line();
    if (text.empty()) continue;
    const auto number = static_cast<uint8_t>(text[0]) - 'A';
    if (number < 0 || number >= static_cast<int>(std::size(kNames))) continue;
    variables[kNames[number]] = std::string(text.substr(1)).c_str();
  }
  const auto environment = [&](const char* name) {
    const auto v = variables.find(name);
    return v == variables.end() ? nullptr : v->second.c_str();
  };
  succeeds_or_throws({Result::invalid_usage}, [&] {
    const Launch l = read_launch(environment);
    require(l.size >= 1 && l.size <= 1 << 20, "a size is possible");
    require(l.rank >= 0 && l.rank < l.size, "a rank is one of them");
    require(l.local_rank >= 0 && l.local_rank < l.size, "a local rank is one of them");
    for (const HostPort& m : l.meeting) require(!m.host.empty() && m.port != 0, "a meeting point has a host and a port");
    require(!l.launcher.empty() && !l.identity.empty(), "a launch has names");
    require(read_launch(environment).identity == l.identity, "a job has one name");
  });
  return 0;
}
