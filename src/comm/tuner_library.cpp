#include "comm/tuner_library.h"

#include <dlfcn.h>

#include <type_traits>

#include "base/log.h"
#include "base/log_options.h"
#include "base/plugin_library.h"
#include "base/text.h"

namespace muster {

std::shared_ptr<const TunerLibrary> TunerLibrary::open(const Options& options) {
  const std::string& wanted = options.text("NCCL_TUNER_PLUGIN");
  if (lower(wanted) == "none") return nullptr;
  const auto cannot = [&](const std::string& why) {
    if (!wanted.empty())
      log_once({true, "NCCL_TUNER_PLUGIN",
                fmt::format("NCCL_TUNER_PLUGIN='{}' has no effect: {}. The planner chooses alone",
                            printable(wanted, 200), printable(why, 400))});
    else
      log_info(Topic::tuning, "no tuner plugin: {}", why);
    return nullptr;
  };
  const PluginLibrary library = open_plugin("tuner", wanted, false);
  if (!library.handle) return cannot(library.problem);
  const auto symbol = [&](int version) {
    return dlsym(library.handle, fmt::format("ncclTunerPlugin_v{}", version).c_str());
  };
  const auto made = [&](auto* plugin, int version) {
    const std::string own = plugin->name ? printable(plugin->name, 100) : "without a name";
    log_info(Topic::tuning, "tuner plugin {} ({}) is used, version {} of its interface", own, library.file,
             version);
    return std::shared_ptr<const TunerLibrary>(
        new TunerLibrary(library.handle, plugin, fmt::format("{} (v{})", own, version)));
  };
  if (void* p = symbol(5)) return made(static_cast<const tuner_abi::V5*>(p), 5);
  if (void* p = symbol(4)) return made(static_cast<const tuner_abi::V4*>(p), 4);
  if (void* p = symbol(3)) return made(static_cast<const tuner_abi::V3*>(p), 3);
  if (void* p = symbol(2)) return made(static_cast<const tuner_abi::V2*>(p), 2);
  std::string other;
  for (const int version : {1, 6, 7, 8})
    if (symbol(version)) other += fmt::format(" It has ncclTunerPlugin_v{}.", version);
  dlclose(library.handle);
  return cannot(
      fmt::format("{} has none of ncclTunerPlugin_v2 to ncclTunerPlugin_v5.{}", library.file, other));
}

TunerLibrary::~TunerLibrary() { dlclose(handle_); }

int TunerLibrary::begin(const TunerPlace& place, tuner_abi::Constants* constants, void** context) const {
  return std::visit(
      [&](const auto* p) {
        if constexpr (std::is_same_v<decltype(p), const tuner_abi::V5*>) {
          tuner_abi::NvlDomains domains{static_cast<int>(place.hosts), place.least_on_host,
                                        place.most_on_host};
          return p->init(context, place.communicator, place.ranks, place.hosts, log_for_plugin, &domains,
                         constants);
        } else {
          return p->init(place.ranks, place.hosts, log_for_plugin, context);
        }
      },
      plugin_);
}

int TunerLibrary::choose(void* context, tuner_abi::Function function, uint64_t bytes,
                         tuner_abi::CostTable& table, int* channels) const {
  using namespace tuner_abi;
  constexpr int kOperations = 1;  // each call is planned for itself
  constexpr int kRegistered = 0;  // what the table has goes through slots
  auto** const flat = reinterpret_cast<float**>(&table[0][0]);
  return std::visit(
      [&](const auto* p) {
        using Version = std::remove_cv_t<std::remove_pointer_t<decltype(p)>>;
        if constexpr (std::is_same_v<Version, V2>) {
          int algorithm = -1, protocol = -1;
          const int result =
              p->choose(context, function, bytes, 0, 0, kOperations, &algorithm, &protocol, channels);
          const bool known =
              algorithm >= 0 && algorithm < kAlgorithms && protocol >= 0 && protocol < tuner_abi::kProtocols;
          if (result == 0 && known && table[algorithm][protocol] != kIgnore) table[algorithm][protocol] = 0;
          return result;
        } else if constexpr (std::is_same_v<Version, V3>) {
          return p->choose(context, function, bytes, kOperations, flat, kAlgorithms, tuner_abi::kProtocols, channels);
        } else {
          return p->choose(context, function, bytes, kOperations, flat, kAlgorithms, tuner_abi::kProtocols, kRegistered,
                           channels);
        }
      },
      plugin_);
}

int TunerLibrary::end(void* context) const {
  return std::visit([&](const auto* p) { return p->destroy(context); }, plugin_);
}

}  // namespace muster
