/* dlopen, use, dlclose, again and again: beyond the one helper thread of the first time, which is the
 * process's, no thread, descriptor or memory is left, and the program ends normally. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static int entries(const char* folder) {
  DIR* d = opendir(folder);
  if (!d) fail(folder);
  int n = 0;
  while (readdir(d)) ++n;
  closedir(d);
  return n;
}

static long resident_pages(void) {
  long size = 0, resident = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  if (!f || fscanf(f, "%ld %ld", &size, &resident) != 2) fail("/proc/self/statm");
  fclose(f);
  return resident;
}

static void use(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(dlerror());
  __typeof__(&ncclCommInitAll) init = (__typeof__(init))dlsym(library, "ncclCommInitAll");
  __typeof__(&ncclAllReduce) all_reduce = (__typeof__(all_reduce))dlsym(library, "ncclAllReduce");
  __typeof__(&ncclGroupStart) start = (__typeof__(start))dlsym(library, "ncclGroupStart");
  __typeof__(&ncclGroupEnd) end = (__typeof__(end))dlsym(library, "ncclGroupEnd");
  __typeof__(&ncclCommDestroy) destroy = (__typeof__(destroy))dlsym(library, "ncclCommDestroy");
  __typeof__(&ncclCommCount) count = (__typeof__(count))dlsym(library, "ncclCommCount");
  ncclComm_t comms[2];
  float in[2] = {1, 2}, out[2] = {0, 0};
  int n = 0;
  if (init(comms, 2, NULL) != ncclSuccess) fail("init");
  if (count(NULL, &n) != ncclInvalidArgument) fail("count"); /* leaves a text with this thread */
  start();
  for (int r = 0; r < 2; ++r) all_reduce(&in[r], &out[r], 1, ncclFloat, ncclSum, comms[r], NULL);
  if (end() != ncclSuccess || out[0] != 3 || out[1] != 3) fail("all-reduce");
  for (int r = 0; r < 2; ++r) destroy(comms[r]);
  if (dlclose(library) != 0) fail("dlclose");
}

static void wait_a_moment(void) {
  const struct timespec moment = {0, 10000000};
  nanosleep(&moment, NULL);
}

/* Threads that are ending and connections that are closing are looked for again. */
static int left(const char* folder, int expected) {
  int n = 0;
  for (int i = 0; i < 200; ++i) {
    n = entries(folder);
    if (n == expected) return 0;
    wait_a_moment();
  }
  return n - expected;
}

/* As many as there are for a while. */
static int settled(const char* folder) {
  int n = entries(folder);
  for (int same = 0; same < 20; ++same) {
    wait_a_moment();
    const int now = entries(folder);
    if (now != n) same = 0;
    n = now;
  }
  return n;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int before = entries("/proc/self/task");
  for (int i = 0; i < 5; ++i) use(argv[1]);
  if (left("/proc/self/task", before + 1)) fail("there is more than one helper thread");
  const int descriptors = settled("/proc/self/fd");
  const long pages = resident_pages();
  for (int i = 0; i < 50; ++i) use(argv[1]);
  if (left("/proc/self/task", before + 1)) fail("threads are left");
  if (left("/proc/self/fd", descriptors)) fail("descriptors are left");
  if (resident_pages() > pages + 512) fail("memory is left"); /* 2 MiB for the allocator's moods */
  printf("nothing is left\n");
  return 0;
}
