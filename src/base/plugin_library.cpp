#include "base/plugin_library.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <optional>
#include <vector>

#include "base/log.h"
#include "base/text.h"

namespace muster {
namespace {

// ncclDebugLogLevel
constexpr int kPluginWarns = 2, kPluginAborts = 4, kPluginTraces = 5;

std::vector<std::string> plugin_files(const std::string& kind, const std::string& wanted) {
  if (wanted.empty()) return {"libnccl-" + kind + ".so"};
  std::vector<std::string> files = {wanted};
  const bool full = wanted.find('/') != wanted.npos || (wanted.starts_with("lib") && wanted.ends_with(".so"));
  if (!full) files.push_back("libnccl-" + kind + "-" + wanted + ".so");
  return files;
}

}  // namespace

void log_for_plugin(int level, unsigned long topics, const char*, int, const char* format, ...) {
  const LogLevel ours = level == kPluginWarns || level == kPluginAborts ? LogLevel::warn
                        : level == kPluginTraces                        ? LogLevel::trace
                                                                        : LogLevel::info;
  std::optional<Topic> topic;
  if (ours != LogLevel::warn) {
    for (int t = 0; t < kTopics && !topic; ++t)
      if ((topics >> t & 1) && log_enabled(ours, static_cast<Topic>(t))) topic = static_cast<Topic>(t);
    if (!topic) return;
  } else if (!log_enabled(ours)) {
    return;
  }
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  log_line(ours, topic, text);
}

PluginLibrary open_plugin(const std::string& kind, const std::string& wanted, bool keep) {
  PluginLibrary o;
  for (const std::string& file : plugin_files(kind, wanted)) {
    const bool itself = lower(file) == "static_plugin";
    o.handle = dlopen(itself ? nullptr : file.c_str(), RTLD_NOW | RTLD_LOCAL | (keep ? RTLD_NODELETE : 0));
    o.file = file;
    if (o.handle) return o;
    const char* why = dlerror();
    o.problem += fmt::format("{}{}", o.problem.empty() ? "" : "; ", why ? why : file);
  }
  return o;
}

}  // namespace muster
