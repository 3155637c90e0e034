// A network plugin of NCCL's: finding it, and calling it whatever its version. What a function of it returns, other than
// success, is an Error that names the function, the plugin and the code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/options.h"
#include "transports/net_plugin/net_abi.h"

namespace muster::net_plugin {

// Plugins keep the state of a connection that is being made in its handle, so this stays where it is until it is made.
using Handle = std::array<std::byte, net_abi::kHandleBytes>;

struct Device {
  int number = 0;
  std::string name;
  int megabits = 0;  // per second
  size_t most_bytes = SIZE_MAX;  // of one message
  bool reads_gpus = false;       // takes GPU memory, too
};

class Plugin {
 public:
  // As NCCL_NET_PLUGIN says: names or files, separated by commas, of which the first that serves is taken; none: none; not
  // set: libnccl-net.so, if there is one. Null: none, or none that serves, which is warned about once per process if it was
  // asked for. A plugin is loaded and begun once per process, and stays.
  static std::shared_ptr<const Plugin> open(const Options& options);

  const std::string& name() const { return name_; }  // the plugin's own, and the interface's version: "AWS Libfabric (v10)"
  std::vector<Device> devices() const;               // those that take host memory

  void* begin(uint64_t communicator) const;  // a context; null before version 11
  void end(void* context) const noexcept;
  void* listen(void* context, int device, Handle& handle) const;
  void* connect(void* context, int device, Handle& handle) const;  // null: not yet, call it again
  void* accept(void* listener) const;                              // the same
  enum class Kind : uint8_t { host, gpu };
  void* register_memory(void* comm, void* data, size_t bytes, Kind kind = Kind::host) const;
  void deregister(void* comm, void* memory) const noexcept;
  void* send(void* comm, const void* data, size_t bytes, void* memory) const;  // a request; null: not now, call it again
  void* receive(void* comm, void* data, size_t most, void* memory) const;      // the same
  bool test(void* request, size_t* bytes) const;                               // done; bytes: that came
  void close_send(void* comm) const noexcept;
  void close_receive(void* comm) const noexcept;
  void close_listen(void* listener) const noexcept;

 private:
  using Versions = std::variant<const net_abi::V11*, const net_abi::V10*, const net_abi::V9*, const net_abi::V8*>;
  Plugin(Versions plugin, std::string name) : plugin_(plugin), name_(std::move(name)) {}
  static std::shared_ptr<const Plugin> load(const std::string& wanted, std::string* problem);
  void check(const char* function, net_abi::Result code) const;
  void say(const char* function, net_abi::Result code) const noexcept;
  const net_abi::Memory& memory() const;
  const net_abi::Completion& completion() const;

  const Versions plugin_;
  const std::string name_;
};

}  // namespace muster::net_plugin
