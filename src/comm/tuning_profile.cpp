#include "comm/tuning_profile.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <functional>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"

namespace muster {
namespace {

constexpr size_t kMostProfileBytes = 1 << 20;

std::string contents(const std::string& file, const std::string& option) {
  const auto close = [](FILE* f) { std::fclose(f); };
  const std::unique_ptr<FILE, decltype(close)> f(std::fopen(file.c_str(), "re"), close);
  std::string text(kMostProfileBytes + 1, '\0');
  if (f) text.resize(std::fread(text.data(), 1, text.size(), f.get()));
  if (!f || std::ferror(f.get()))
    fail(Result::invalid_usage,
         "{}: the tuning profile can't be read: {}. Write one with muster tune, or unset "
         "MUSTER_TUNING_PROFILE",
         option, describe_errno(errno));
  return text;
}

bool is_there(const std::string& file) {
  struct stat s;
  return stat(file.c_str(), &s) == 0 && S_ISREG(s.st_mode);
}

// Of the values, not of the text: comments may differ.
uint64_t hash_of(const Constants& c) {
  uint64_t hash = 1;
  for (const auto& [name, constant] : c.all()) {
    for (const char letter : name) hash = hash_combine(hash, static_cast<unsigned char>(letter));
    hash = hash_combine(hash, std::hash<double>()(constant.value));
  }
  for (const MeasuredRow& row : c.calls().rows()) {
    for (const char* const name : {name_of(row.algorithm->coll), row.algorithm->name})
      for (const char letter : std::string_view(name))
        hash = hash_combine(hash, static_cast<unsigned char>(letter));
    hash = hash_combine(hash_combine(hash, static_cast<uint64_t>(row.ranks)), static_cast<uint64_t>(row.cores));
    for (const MeasuredRow::Point& p : row.points)
      hash = hash_combine(hash_combine(hash, p.bytes), std::hash<double>()(p.us));
  }
  return hash ? hash : 1;
}

}  // namespace

std::string default_tuning_file(const Options& options) {
  return options.home().empty() ? std::string() : options.home() + "/.muster.tuning";
}

TuningProfile load_tuning_profile(const Options& options, const char* system_file) {
  TuningProfile p;
  if (options.is_set("MUSTER_TUNING_PROFILE")) {
    p.file = options.text("MUSTER_TUNING_PROFILE");
  } else {
    for (const std::string& file : {default_tuning_file(options), std::string(system_file)})
      if (p.file.empty() && !file.empty() && is_there(file)) p.file = file;
  }
  if (p.file.empty()) return p;
  const std::string shown = printable(p.file, 200);
  const std::string text = contents(p.file, options.is_set("MUSTER_TUNING_PROFILE")
                                                ? fmt::format("MUSTER_TUNING_PROFILE='{}'", shown)
                                                : shown);
  auto all = std::make_shared<Constants>(Constants::built_in());
  try {
    all->override_with(Constants::read(text, shown), shown);
  } catch (const Error& e) {
    fail(Result::invalid_usage, "the tuning profile is wrong: {}", e.what());
  }
  p.hash = hash_of(*all);
  p.constants = std::move(all);
  return p;
}

void require_one_profile(const std::vector<RankProfile>& ranks) {
  const auto named = [](const RankProfile& r) {
    return r.file.empty()
               ? r.rank + " has none"
               : fmt::format("{} has {} (contents {:016x})", r.rank, printable(r.file, 200), r.hash);
  };
  for (const RankProfile& r : ranks)
    if (r.hash != ranks[0].hash)
      fail(Result::invalid_usage,
           "ranks differ in their tuning profile, by which all must choose alike: {}, {}. Let "
           "MUSTER_TUNING_PROFILE name the same on all ranks, or set it to nothing",
           named(ranks[0]), named(r));
}

}  // namespace muster
