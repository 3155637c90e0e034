#include "transports/make_network.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "transports/net_plugin/net_plugin_network.h"
#include "transports/tcp/tcp_network.h"
#ifdef MUSTER_HAVE_UCX
#include "transports/ucx/ucp_library.h"
#include "transports/ucx/ucx_network.h"
#endif
#ifdef MUSTER_HAVE_VERBS
#include "transports/verbs/verbs_network.h"
#endif

namespace muster {
namespace {

std::string why_no_verbs(const Options& options) {
  if (options.flag("NCCL_IB_DISABLE")) return "NCCL_IB_DISABLE=1 forbids RDMA";
#ifdef MUSTER_HAVE_VERBS
  return verbs::verbs_problem(options);
#else
  return "this build has no RDMA (libibverbs-dev was missing)";
#endif
}

std::string ucx_problem() {
#ifdef MUSTER_HAVE_UCX
  return UcpLibrary::problem();
#else
  return "this build has no UCX (libucx-dev was missing)";
#endif
}

bool has_rdma(const Options& options) {
  std::error_code error;
  return !options.flag("NCCL_IB_DISABLE") &&
         std::filesystem::directory_iterator("/sys/class/infiniband", error) != std::filesystem::directory_iterator();
}

// In front of a plugin's own name: ranks with different plugins don't offer the same.
constexpr std::string_view kPluginOffer = "plugin ";

}  // namespace

std::vector<NetworkOffer> network_offers(const Options& options) {
  const std::string& wish = options.text("NCCL_NET");
  const std::string net = lower(wish);
  std::vector<NetworkOffer> all;
  const auto plugin = net_plugin::Plugin::open(options);
  if (plugin && (net.empty() || lower(plugin->name()) == net || lower(plugin->name()).starts_with(net + " (v")))
    all.push_back({std::string(kPluginOffer) + plugin->name(), ""});
  if (net.empty() || net == "ib" || net == "verbs") all.push_back({"verbs", why_no_verbs(options)});
  // Over TCP the library's own way is the faster one; over RDMA UCX is.
  const NetworkOffer ucx{"ucx", ucx_problem()};
  const bool rdma = net == "ib" || (net.empty() && has_rdma(options));
  if (rdma || net == "ucx") all.push_back(ucx);
  if (net.empty() || net == "socket" || net == "tcp") all.push_back({"tcp", ""});
  if (net.empty() && !rdma) all.push_back(ucx);
  if (all.empty()) fail(Result::invalid_usage, "NCCL_NET='{}' names no network. There are Socket, tcp, IB, verbs, ucx{}", wish,
                        plugin ? fmt::format(", and of the plugin {}", plugin->name()) : "");
  return all;
}

std::vector<std::string> offered_networks(const Options& options) {
  std::vector<std::string> names;
  for (NetworkOffer& o : network_offers(options))
    if (o.problem.empty()) names.push_back(std::move(o.name));
  return names;
}

std::string missing_networks(const Options& options) {
  std::string text;
  for (const NetworkOffer& o : network_offers(options))
    if (!o.problem.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", o.name, o.problem);
  return text;
}

std::optional<std::string> common_network(std::span<const std::vector<std::string>> offers) {
  for (const std::string& name : offers.front())
    if (std::ranges::all_of(offers, [&](const auto& o) { return std::ranges::find(o, name) != o.end(); })) return name;
  return {};
}

std::unique_ptr<Network> make_network(const std::string& name, const NetworkSetup& setup) {
  if (name.starts_with(kPluginOffer)) {
    if (auto plugin = net_plugin::Plugin::open(setup.options)) return std::make_unique<NetPluginNetwork>(std::move(plugin), setup);
    fail(Result::system_error, "the network {} is gone", name);
  }
#ifdef MUSTER_HAVE_VERBS
  if (name == "verbs") return verbs::make_verbs_network(setup);
#endif
#ifdef MUSTER_HAVE_UCX
  if (name == "ucx") return make_ucx_network(setup);
#endif
  if (name == "tcp") return std::make_unique<TcpNetwork>(setup);
  fail(Result::internal_error, "this build has no network '{}'", name);
}

std::unique_ptr<Network> make_network(const NetworkSetup& setup) {
  const auto names = offered_networks(setup.options);
  if (names.empty()) fail(Result::system_error, "this host has no network for ranks of other hosts: {}", missing_networks(setup.options));
  return make_network(names[0], setup);
}

}  // namespace muster
