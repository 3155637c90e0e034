// The subcommands of `muster`: each adds itself to the application and leaves its exit status in `status`.
#pragma once

#include <CLI/CLI.hpp>

namespace muster::tool {

void add_run(CLI::App& app, int& status);
void mark_end_of_options(int argc, char** argv);  // before parse: makes `muster run ... -- PROGRAM` work
void add_doctor(CLI::App& app, int& status);
void add_status(CLI::App& app, int& status);
void add_program(CLI::App& app, int& status);
void add_topo(CLI::App& app, int& status);
void add_tune(CLI::App& app, int& status);
void add_plan(CLI::App& app, int& status);
void add_estimate(CLI::App& app, int& status);
void add_version(CLI::App& app, int& status);

}  // namespace muster::tool
