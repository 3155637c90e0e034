// The `muster` command.
#include <cstdio>
#include <exception>

#include "commands.h"
#include "muster/types.h"

int main(int argc, char** argv) {
  CLI::App app("Muster: collective communication on GPUs and host memory", "muster");
  app.require_subcommand(1);
  int status = 0;
  muster::tool::add_run(app, status);
  muster::tool::add_doctor(app, status);
  muster::tool::add_status(app, status);
  muster::tool::add_program(app, status);
  muster::tool::add_topo(app, status);
  muster::tool::add_tune(app, status);
  muster::tool::add_plan(app, status);
  muster::tool::add_estimate(app, status);
  muster::tool::add_version(app, status);
  muster::tool::mark_end_of_options(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;  // help and version are no failures
  } catch (const std::exception& e) {
    std::fprintf(stderr, "muster: %s\n", e.what());
    return 1;
  }
  return status;
}
