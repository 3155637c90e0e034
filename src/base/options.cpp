#include "base/options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/conf_file.h"
#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

struct Setting {
  std::string text, source;
};
using Settings = std::map<std::string, Setting, std::less<>>;

bool is_ours(std::string_view name) { return name.starts_with("NCCL_") || name.starts_with("MUSTER_"); }
bool speaks_nccl(const Option& o) { return std::string_view(o.name).starts_with("NCCL_"); }
bool is_family(const Option& o) { return std::string_view(o.name).ends_with('*'); }

bool matches(const Option& o, std::string_view name) {
  return is_family(o) ? name.starts_with(std::string_view(o.name, std::string_view(o.name).size() - 1)) : name == o.name;
}

// --- where values come from ---

// NCCL_ and MUSTER_ variables, whatever the case of these letters; of two of one name the first, as getenv does.
Settings read_environment() {
  Settings found;
  for (char** e = environ; e && *e; ++e) {
    const std::string_view entry = *e;
    const size_t equals = entry.find('=');
    if (equals == entry.npos || (!entry.starts_with("HOME=") && (entry[0] | 0x20) != 'n' && (entry[0] | 0x20) != 'm')) continue;
    const std::string_view name = entry.substr(0, equals);
    if (const std::string small = lower(name.substr(0, 7)); name == "HOME" || small.starts_with("nccl_") || small == "muster_")
      found.try_emplace(std::string(name), Setting{std::string(entry.substr(equals + 1)), "environment"});
  }
  return found;
}

// What the environment doesn't have.
void add_file(Settings& settings, const std::string& path, bool wanted, std::vector<OptionNote>& notes) {
  const ConfFile file = read_conf_file(path);
  if (!file.found && wanted) notes.push_back({true, path, fmt::format("NCCL_CONF_FILE='{}': there is no such file", path)});
  for (const ConfFile::Problem& p : file.problems) {
    const std::string where = p.number ? fmt::format("{}:{}", path, p.number) : path;
    notes.push_back({true, where, where + ": " + p.text});
  }
  for (const ConfFile::Line& line : file.lines) {
    const std::string where = fmt::format("{}:{}", path, line.number);
    if (is_ours(line.name))
      settings.try_emplace(line.name, Setting{line.value, where});
    else
      notes.push_back({true, where, fmt::format("{}: {} is passed over: only NCCL_ and MUSTER_ variables are read from files", where, printable(line.name, 60))});
  }
}

Settings read_settings(const char* system_file, std::vector<OptionNote>& notes, std::string& home) {
  Settings settings = read_environment();
  const auto text = [&](std::string_view name) {
    const auto it = settings.find(name);
    return it == settings.end() ? std::string() : it->second.text;
  };
  home = text("HOME");
  if (const std::string chosen = text("NCCL_CONF_FILE"); !chosen.empty())
    add_file(settings, chosen, true, notes);
  else if (!home.empty())
    add_file(settings, home + "/.nccl.conf", false, notes);
  add_file(settings, system_file, false, notes);
  settings.erase("HOME");
  return settings;
}

// --- what they mean: each returns what is wanted instead, or null ---

const char* read_decimal(std::string_view text, bool units, int64_t& n) {
  const char* wanted = units ? "a number of bytes, with K, M or G behind it if wished" : "a whole number of 0 or more";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || n < 0) return wanted;
  const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  if (rest.empty()) return nullptr;
  if (!units || rest.size() != 1) return wanted;
  const size_t unit = std::string_view("KMG").find(static_cast<char>(rest[0] & ~0x20));
  if (unit == std::string_view::npos) return wanted;
  const int shift = static_cast<int>(10 * (unit + 1));
  if (n > (INT64_MAX >> shift)) return wanted;
  n <<= shift;
  return nullptr;
}

const char* read_seconds(std::string_view text, std::chrono::nanoseconds& time) {
  constexpr double kMost = 1e9;  // so that sums of times don't overflow
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0)) return "a number of seconds";
  time = std::chrono::nanoseconds(static_cast<int64_t>(std::min(seconds, kMost) * 1e9));
  return nullptr;
}

const char* read_value(const Option& o, Options::Value& v) {
  switch (o.type) {
    case OptionType::flag:
      if (v.text != "0" && v.text != "1") return "0 or 1";
      v.integer = v.text == "1";
      return nullptr;
    case OptionType::integer: return read_decimal(v.text, false, v.integer);
    case OptionType::size: return read_decimal(v.text, true, v.integer);
    case OptionType::seconds: return read_seconds(v.text, v.seconds);
    case OptionType::text:
    case OptionType::text_or_none:
    case OptionType::secret: return nullptr;
  }
  return nullptr;
}

// Numbers as NCCL reads them. `unset`: NCCL's own mark for a value that nobody has set.
const char* read_nccl_value(const Option& o, Options::Value& v, bool& unset) {
  if (o.type == OptionType::text || o.type == OptionType::text_or_none) return nullptr;
  const auto n = parse_c_integer(v.text);
  if (!n && o.type == OptionType::size) return read_decimal(trim(v.text), true, v.integer);
  if (!n) return "a whole number (decimal, 0x hexadecimal or 0 octal)";
  unset = *n == -2 || *n == INT32_MIN;
  if (*n < 0 && !unset && !o.no_effect && v.text != o.default_value) return "a whole number of 0 or more";
  v.integer = o.type == OptionType::flag ? *n != 0 : *n;
  return nullptr;
}

std::string shown(const Option& o, const std::string& text) {
  return o.type == OptionType::secret ? fmt::format("{} (not shown)", o.name) : fmt::format("{}='{}'", o.name, printable(text, 200));
}

// --- names that nobody reads ---

// Likely typos are warned about; other names may belong to a newer NCCL or to somebody else.
void note_unknown(const std::string& name, const Setting& setting, std::vector<OptionNote>& notes) {
  constexpr size_t kLongest = 64;
  static const auto known = [] {
    std::vector<std::string_view> names;
    for (const Option& o : option_table())
      if (!is_family(o)) names.push_back(std::string_view(o.name));
    return names;
  }();
  std::string upper = name;
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c & ~0x20);
  const std::string_view meant = name.size() <= kLongest ? nearest_name(upper, known) : std::string_view{};
  if (!meant.empty())
    notes.push_back({true, name, fmt::format("{} ({}) is not read: there is no such variable. Is {} meant?", printable(name), setting.source, meant)});
  else if (is_ours(name))
    notes.push_back({false, name, fmt::format("{} ({}) has no effect: Muster doesn't know it", printable(name, 200), setting.source)});
}

}  // namespace

Options Options::inspect(const char* system_file) {
  auto content = std::make_shared<Content>();
  std::vector<OptionNote>& notes = content->notes;
  const Settings settings = read_settings(system_file, notes, content->home);
  for (const Option& o : option_table()) {
    Value v;
    const auto it = settings.find(o.name);
    const bool empty = it == settings.end() || it->second.text.empty();
    v.set = it != settings.end() && (!empty || o.type == OptionType::text_or_none);
    bool unset = false;
    if (v.set) {
      v.text = it->second.text;
      v.source = it->second.source;
      const char* wanted = speaks_nccl(o) ? read_nccl_value(o, v, unset) : read_value(o, v);
      if (wanted && !speaks_nccl(o)) {
        if (content->problem.empty())
          content->problem = fmt::format("{} can't be read ({}): {} is wanted ({}). Correct or unset the variable", shown(o, v.text), v.source, wanted, o.help);
      } else if (wanted) {
        notes.push_back({true, o.name,
                         fmt::format("{} can't be read ({}): {} is wanted. {}", shown(o, v.text), v.source, wanted,
                                     o.no_effect ? fmt::format("It would have no effect: {}", o.no_effect)
                                                 : fmt::format("{} is used", *o.default_value ? o.default_value : "the default"))});
      } else if (!unset) {
        notes.push_back({false, o.name,
                         fmt::format("{} ({}){}", shown(o, v.text), v.source, o.no_effect ? fmt::format(" has no effect: {}", o.no_effect) : "")});
      }
      if (wanted || unset) v = Value{};
    }
    if (!v.set) {
      v.text = o.default_value;
      bool ignored = false;
      if (!v.text.empty()) speaks_nccl(o) ? read_nccl_value(o, v, ignored) : read_value(o, v);
    }
    content->values.push_back(std::move(v));
  }
  for (const auto& [name, setting] : settings) {
    if (setting.text.empty()) continue;
    const auto row = std::find_if(option_table().begin(), option_table().end(), [&n = name](const Option& o) { return matches(o, n); });
    if (row == option_table().end())
      note_unknown(name, setting, notes);
    else if (is_family(*row))
      notes.push_back({false, name, fmt::format("{} ({}) has no effect: {}", printable(name, 200), setting.source, row->no_effect)});
  }
  Options r;
  r.content_ = std::move(content);
  return r;
}

Options Options::from_environment(const char* system_file) {
  Options r = inspect(system_file);
  if (!r.problem().empty()) fail(Result::invalid_usage, "{}", r.problem());
  return r;
}

const Options::Value& Options::value(std::string_view name, std::initializer_list<OptionType> types) const {
  const auto table = option_table();
  for (size_t i = 0; i < table.size(); ++i)
    if (name == table[i].name && content_ && (types.size() == 0 || std::count(types.begin(), types.end(), table[i].type)))
      return content_->values[i];
  fail(Result::internal_error, "no option {} of that type in the registry", name);
}

bool Options::flag(std::string_view name) const { return value(name, {OptionType::flag}).integer != 0; }
int64_t Options::integer(std::string_view name) const { return value(name, {OptionType::integer, OptionType::size}).integer; }
std::chrono::nanoseconds Options::seconds(std::string_view name) const { return value(name, {OptionType::seconds}).seconds; }
const std::string& Options::text(std::string_view name) const {
  return value(name, {OptionType::text, OptionType::text_or_none, OptionType::secret}).text;
}
bool Options::is_set(std::string_view name) const { return value(name, {}).set; }

std::vector<std::string> Options::agreement() const {
  std::vector<std::string> r;
  const auto table = option_table();
  for (size_t i = 0; i < table.size(); ++i) {
    if (!table[i].must_agree) continue;
    const bool number = table[i].type == OptionType::flag || table[i].type == OptionType::integer || table[i].type == OptionType::size;
    const Value& v = content_->values[i];
    r.push_back(fmt::format("{}={}", table[i].name, number ? std::to_string(v.integer) : v.text));
  }
  return r;
}

}  // namespace muster
