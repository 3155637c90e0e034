// A tuner plugin of NCCL's: finding it, and calling it whatever its version.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "base/options.h"
#include "comm/tuner_abi.h"

namespace muster {

// Ranks as a plugin is told of them.
struct TunerPlace {
  uint64_t communicator = 0;
  size_t ranks = 1, hosts = 1;
  int least_on_host = 1, most_on_host = 1;
};

class TunerLibrary {
 public:
  // As NCCL_TUNER_PLUGIN says: the library of this file name, else libnccl-tuner-NAME.so; none: none; not
  // set: libnccl-tuner.so, if there is one. Null: none, or one that can't be used, which is warned about once
  // per process if it was asked for.
  static std::shared_ptr<const TunerLibrary> open(const Options& options);
  ~TunerLibrary();
  TunerLibrary(const TunerLibrary&) = delete;
  TunerLibrary& operator=(const TunerLibrary&) = delete;

  const std::string& name() const { return name_; }  // the plugin's own, and the interface's version
  // What the plugin returned; 0: success. `constants`: out.
  int begin(const TunerPlace& place, tuner_abi::Constants* constants, void** context) const;
  // Edits `table` and `channels`.
  int choose(void* context, tuner_abi::Function function, uint64_t bytes, tuner_abi::CostTable& table,
             int* channels) const;
  int end(void* context) const;

 private:
  using Plugin =
      std::variant<const tuner_abi::V5*, const tuner_abi::V4*, const tuner_abi::V3*, const tuner_abi::V2*>;
  TunerLibrary(void* handle, Plugin plugin, std::string name)
      : handle_(handle), plugin_(plugin), name_(std::move(name)) {}

  void* const handle_;
  const Plugin plugin_;
  const std::string name_;
};

}  // namespace muster
