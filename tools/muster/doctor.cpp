// `muster doctor`: what may be set, and to what it is set.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "base/log_options.h"
#include "base/options.h"
#include "base/text.h"
#include "commands.h"
#include "option_words.h"
#include "options_page.h"

namespace muster::tool {
namespace {

void print_set(const Option& o, const Options::Value& v) {
  if (!v.set) return;
  const std::string value = o.type == OptionType::secret ? "" : fmt::format("to '{}' ", printable(v.text, 200));
  fmt::print("{:<29}  now set {}({}){}{}\n", "", value, v.source, o.no_effect ? ", no effect: " : "", o.no_effect ? o.no_effect : "");
}

void print_options(const Options& options) {
  fmt::print("What Muster can be told by environment variables and files (NCCL_CONF_FILE or ~/.nccl.conf, /etc/nccl.conf).\n"
             "* = must be equal on all ranks.\n\n");
  fmt::print("{:<29}  {:<8}  {:<18}  {}\n", "NAME", "TYPE", "DEFAULT", "MEANING");
  const auto table = option_table();
  for (size_t i = 0; i < table.size(); ++i) {
    const Option& o = table[i];
    if (o.no_effect) continue;
    const std::string type = words_for(o.type);
    fmt::print("{:<28}{}  {:<8}  {:<18}  {}\n", o.name, o.must_agree ? '*' : ' ', type.substr(0, type.find(',')),
               *o.default_value ? o.default_value : "-", o.help);
    print_set(o, options.values()[i]);
  }
  size_t without = 0, set = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    if (!table[i].no_effect) continue;
    ++without;
    if (!options.values()[i].set) continue;
    if (!set++) fmt::print("\nSet, without effect:\n");
    fmt::print("{}\n", table[i].name);
    print_set(table[i], options.values()[i]);
  }
  fmt::print("\n{} more variables of NCCL's are accepted without effect; docs/options.md lists them, and why.\n", without);
}

void print_problems(const Options& options) {
  std::vector<OptionNote> notes = options.notes();
  if (options.problem().empty()) log_settings(options, notes);  // throws what can't be read
  bool first = true;
  for (const OptionNote& note : notes) {
    if (!note.warning) continue;
    if (std::exchange(first, false)) fmt::print("\nLook at:\n");
    fmt::print("{}\n", printable(note.text));
  }
  if (!options.problem().empty()) fail(Result::invalid_usage, "{}", options.problem());
}

}  // namespace

void add_doctor(CLI::App& app, int&) {
  CLI::App* doctor = app.add_subcommand("doctor", "Show what Muster can be told by environment variables");
  doctor
      ->add_flag_function(
          "--options", [](int64_t) {}, "List every option with its type, default and meaning, its value and where it comes from")
      ->required();
  const auto markdown = std::make_shared<bool>(false);
  doctor->add_flag("--markdown", *markdown, "Print the reference page (docs/options.md) instead");
  doctor->callback([markdown] {
    if (*markdown) return fmt::print("{}", options_page());
    const Options options = Options::inspect();
    print_options(options);
    print_problems(options);
  });
}

}  // namespace muster::tool
