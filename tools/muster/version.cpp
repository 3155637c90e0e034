// `muster version`
#include <fmt/format.h>

#include "commands.h"
#include "muster/muster.h"

namespace muster::tool {

void add_version(CLI::App& app, int&) {
  app.add_subcommand("version", "Print the library's version")->callback([] {
    fmt::print("{}\n", version());
  });
}

}  // namespace muster::tool
