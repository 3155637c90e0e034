// Plugins that were made for NCCL: finding their libraries, and what they log with.
#pragma once

#include <string>

namespace muster {

// ncclDebugLogger_t: level as NCCL_LOG_WARN and so on; topics a bit each, in the order of Topic.
using PluginLog = void (*)(int level, unsigned long topics, const char* file, int line, const char* format, ...);
// Into Muster's log. Any thread.
void log_for_plugin(int level, unsigned long topics, const char* file, int line, const char* format, ...);

struct PluginLibrary {
  void* handle = nullptr;     // of dlopen; null: none could be opened
  std::string file, problem;  // of the last attempt
};
// kind: "tuner", "net". wanted: the library of this file name, else libnccl-KIND-WANTED.so; empty: libnccl-KIND.so;
// STATIC_PLUGIN: the program itself. `keep`: it is never unloaded.
PluginLibrary open_plugin(const std::string& kind, const std::string& wanted, bool keep);

}  // namespace muster
