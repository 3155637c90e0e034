// main of every test program: GoogleTest with a time limit on each test, and the ranks of run_processes.
#include <gmock/gmock.h>

#include "support/processes.h"
#include "support/watchdog.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  muster::test::install_stack_printer();
  if (muster::test::is_rank_process()) return muster::test::rank_process_main();
  muster::test::install_watchdog();
  return RUN_ALL_TESTS();
}
