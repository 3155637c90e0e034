// `muster doctor`: what may be set, and to what it is set.
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "base/options.h"
#include "commands.h"

namespace muster::tool {
namespace {

const char* name_of(OptionType type) {
  switch (type) {
    case OptionType::flag:
      return "0 or 1";
    case OptionType::integer:
      return "number";
    case OptionType::size:
      return "bytes";
    case OptionType::seconds:
      return "seconds";
    case OptionType::text:
      return "text";
  }
  return "?";
}

void print_options() {
  fmt::print("Environment variables that Muster reads. * = must be equal on all ranks.\n\n");
  fmt::print("{:<22}  {:<8}  {:<7}  {}\n", "NAME", "TYPE", "DEFAULT", "MEANING");
  for (const Option& o : option_table()) {
    fmt::print("{:<21}{}  {:<8}  {:<7}  {}\n", o.name, o.must_agree ? '*' : ' ', name_of(o.type),
               *o.default_value ? o.default_value : "-", o.help);
    const char* value = std::getenv(o.name);
    if (!value || !*value) continue;
    if (std::string_view(o.name) == "MUSTER_JOB_KEY")  // a secret
      fmt::print("{:<22}  now set\n", "");
    else
      fmt::print("{:<22}  now set to '{}'\n", "", value);
  }
}

}  // namespace

void add_doctor(CLI::App& app, int&) {
  CLI::App* doctor = app.add_subcommand("doctor", "Show what Muster can be told by environment variables");
  doctor
      ->add_flag_function(
          "--options", [](int64_t) {}, "List every environment variable with its type, default and meaning")
      ->required();
  doctor->callback([] {
    print_options();
    Options::from_environment();  // says which value can't be read
  });
}

}  // namespace muster::tool
