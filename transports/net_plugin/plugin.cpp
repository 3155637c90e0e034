#include "transports/net_plugin/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <type_traits>

#include "base/error.h"
#include "base/log.h"
#include "base/log_options.h"
#include "base/text.h"

namespace muster::net_plugin {

namespace abi = net_abi;

namespace {

template <class P>
using VersionOf = std::remove_cv_t<std::remove_pointer_t<P>>;

constexpr int kTag = 0;  // messages of a connection are told apart by their order

// NCCL tells a profiler of what plugins report; here nobody listens.
abi::Result ignore_profile(void**, int, void*, int64_t, void*) { return 0; }

std::string code_text(abi::Result code) {
  const std::string_view name = name_of(error_code(code));
  return fmt::format("{} ({})", name, code);
}

}  // namespace

void Plugin::check(const char* function, abi::Result code) const {
  if (code == 0) return;
  const Result ours = error_code(code);
  fail(ours == Result::success || ours == Result::in_progress ? Result::internal_error : ours,
       "{} of the network plugin {} returned {}. NCCL_DEBUG=INFO shows what the plugin says of it", function, name_, code_text(code));
}

void Plugin::say(const char* function, abi::Result code) const noexcept {
  if (code) log_info(Topic::net, "{} of the network plugin {} returned {}", function, name_, code_text(code));
}

const abi::Memory& Plugin::memory() const {
  return std::visit([](const auto* p) -> const abi::Memory& { return p->memory; }, plugin_);
}
const abi::Completion& Plugin::completion() const {
  return std::visit([](const auto* p) -> const abi::Completion& { return p->completion; }, plugin_);
}

std::shared_ptr<const Plugin> Plugin::load(const std::string& wanted, std::string* problem) {
  const PluginLibrary library = open_plugin("net", wanted, true);
  if (!library.handle) {
    *problem = library.problem;
    return nullptr;
  }
  const auto symbol = [&](int version) { return dlsym(library.handle, fmt::format("ncclNetPlugin_v{}", version).c_str()); };
  const auto made = [&](const auto* plugin, int version) -> std::shared_ptr<const Plugin> {
    const std::string own = fmt::format("{} (v{})", plugin->name ? printable(plugin->name, 100) : "without a name", version);
    const std::shared_ptr<const Plugin> p(new Plugin(plugin, own));
    try {
      if constexpr (std::is_same_v<VersionOf<decltype(plugin)>, abi::V10>)
        p->check("init", plugin->init(log_for_plugin, ignore_profile));
      else if constexpr (!std::is_same_v<VersionOf<decltype(plugin)>, abi::V11>)  // begins with each context
        p->check("init", plugin->init(log_for_plugin));
      log_info(Topic::net, "network plugin {} ({}) is loaded", own, library.file);
      return p;
    } catch (const Error& e) {
      *problem = e.what();
      return nullptr;
    }
  };
  if (void* p = symbol(11)) return made(static_cast<const abi::V11*>(p), 11);
  if (void* p = symbol(10)) return made(static_cast<const abi::V10*>(p), 10);
  if (void* p = symbol(9)) return made(static_cast<const abi::V9*>(p), 9);
  if (void* p = symbol(8)) return made(static_cast<const abi::V8*>(p), 8);
  std::string other;
  for (const int version : {5, 6, 7, 12, 13})
    if (symbol(version)) other += fmt::format(" It has ncclNetPlugin_v{}.", version);
  *problem = fmt::format("{} has none of ncclNetPlugin_v8 to ncclNetPlugin_v11.{}", library.file, other);
  return nullptr;
}

std::shared_ptr<const Plugin> Plugin::open(const Options& options) {
  const std::string& wanted = options.text("NCCL_NET_PLUGIN");
  if (lower(wanted) == "none") return nullptr;
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Plugin>> loaded;
  const std::lock_guard lock(mutex);
  std::string problems;
  for (const std::string_view entry : split(wanted, ',')) {
    const std::string one(trim(entry));
    if (one.empty() && !wanted.empty()) continue;
    auto& known = loaded[one];
    std::string problem;
    if (!known) known = load(one, &problem);
    if (known) return known;
    problems += (problems.empty() ? "" : "; ") + problem;
  }
  if (wanted.empty())
    log_info(Topic::net, "no network plugin: {}", problems);
  else
    log_once({true, "NCCL_NET_PLUGIN",
              fmt::format("NCCL_NET_PLUGIN='{}' has no effect: {}. Hosts are joined without a plugin", printable(wanted, 200), printable(problems, 600))});
  return nullptr;
}

std::vector<Device> Plugin::devices() const {
  return std::visit(
      [&](const auto* p) {
        using Version = VersionOf<decltype(p)>;
        int n = 0;
        check("devices", p->devices(&n));
        std::vector<Device> r;
        for (int d = 0; d < n; ++d) {
          const auto add = [&](const auto& properties, size_t most) {
            if (properties.pointers & abi::kHostPointers)
              r.push_back({d, printable(properties.name ? properties.name : "?", 64), properties.speed, most ? most : SIZE_MAX,
                           (properties.pointers & abi::kGpuPointers) != 0});
          };
          if constexpr (std::is_same_v<Version, abi::V8>) {
            abi::PropertiesV8 properties{};
            check("getProperties", p->properties(d, &properties));
            add(properties, SIZE_MAX);
          } else if constexpr (std::is_same_v<Version, abi::V11>) {
            abi::PropertiesV11 properties{};
            check("getProperties", p->properties(d, &properties));
            add(properties.common, properties.common.most_bytes);
          } else {
            abi::PropertiesV9 properties{};
            check("getProperties", p->properties(d, &properties));
            add(properties, properties.most_bytes);
          }
        }
        return r;
      },
      plugin_);
}

void* Plugin::begin(uint64_t communicator) const {
  const auto* const v11 = std::get_if<const abi::V11*>(&plugin_);
  if (!v11) return nullptr;
  void* context = nullptr;
  abi::CommConfig config{abi::kNoTrafficClass};
  check("init", (*v11)->init(&context, communicator, &config, log_for_plugin, ignore_profile));
  return context;
}

void Plugin::end(void* context) const noexcept {
  if (const auto* const v11 = std::get_if<const abi::V11*>(&plugin_); v11 && (*v11)->finalize) say("finalize", (*v11)->finalize(context));
}

void* Plugin::listen(void* context, int device, Handle& handle) const {
  return std::visit(
      [&](const auto* p) {
        void* listener = nullptr;
        if constexpr (std::is_same_v<VersionOf<decltype(p)>, abi::V11>)
          check("listen", p->listen(context, device, handle.data(), &listener));
        else
          check("listen", p->listen(device, handle.data(), &listener));
        return listener;
      },
      plugin_);
}

void* Plugin::connect(void* context, int device, Handle& handle) const {
  return std::visit(
      [&](const auto* p) {
        using Version = VersionOf<decltype(p)>;
        void *comm = nullptr, *device_comm = nullptr;
        abi::CommConfig config{abi::kNoTrafficClass};
        if constexpr (std::is_same_v<Version, abi::V11>)
          check("connect", p->connect(context, device, handle.data(), &comm, &device_comm));
        else if constexpr (std::is_same_v<Version, abi::V10>)
          check("connect", p->connect(device, &config, handle.data(), &comm, &device_comm));
        else
          check("connect", p->connect(device, handle.data(), &comm, &device_comm));
        return comm;
      },
      plugin_);
}

void* Plugin::accept(void* listener) const {
  void *comm = nullptr, *device_comm = nullptr;
  std::visit([&](const auto* p) { check("accept", p->accept(listener, &comm, &device_comm)); }, plugin_);
  return comm;
}

void* Plugin::register_memory(void* comm, void* data, size_t bytes, Kind kind) const {
  void* handle = nullptr;
  check("regMr", memory().register_memory(comm, data, bytes, kind == Kind::gpu ? abi::kGpuPointers : abi::kHostPointers, &handle));
  return handle;
}

void Plugin::deregister(void* comm, void* handle) const noexcept { say("deregMr", memory().deregister(comm, handle)); }

void* Plugin::send(void* comm, const void* data, size_t bytes, void* handle) const {
  return std::visit(
      [&](const auto* p) {
        using Version = VersionOf<decltype(p)>;
        void* const from = const_cast<void*>(data);
        void* request = nullptr;
        if constexpr (std::is_same_v<Version, abi::V8>)
          check("isend", p->send(comm, from, static_cast<int>(bytes), kTag, handle, &request));
        else if constexpr (std::is_same_v<Version, abi::V9>)
          check("isend", p->send(comm, from, bytes, kTag, handle, &request));
        else
          check("isend", p->send(comm, from, bytes, kTag, handle, nullptr, &request));
        return request;
      },
      plugin_);
}

void* Plugin::receive(void* comm, void* data, size_t most, void* handle) const {
  return std::visit(
      [&](const auto* p) {
        using Version = VersionOf<decltype(p)>;
        void* request = nullptr;
        int tag = kTag;
        if constexpr (std::is_same_v<Version, abi::V8>) {
          int bytes = static_cast<int>(most);
          check("irecv", p->receive(comm, 1, &data, &bytes, &tag, &handle, &request));
        } else {
          size_t bytes = most;
          void* event = nullptr;
          if constexpr (std::is_same_v<Version, abi::V9>)
            check("irecv", p->receive(comm, 1, &data, &bytes, &tag, &handle, &request));
          else
            check("irecv", p->receive(comm, 1, &data, &bytes, &tag, &handle, &event, &request));
        }
        return request;
      },
      plugin_);
}

bool Plugin::test(void* request, size_t* bytes) const {
  int done = 0, size = 0;
  check("test", completion().test(request, &done, &size));
  if (done && bytes) *bytes = static_cast<size_t>(std::max(0, size));
  return done != 0;
}

void Plugin::close_send(void* comm) const noexcept { say("closeSend", completion().close_send(comm)); }
void Plugin::close_receive(void* comm) const noexcept { say("closeRecv", completion().close_receive(comm)); }
void Plugin::close_listen(void* listener) const noexcept { say("closeListen", completion().close_listen(listener)); }

}  // namespace muster::net_plugin
