/* For examples: ends the program with NCCL's explanation when a call fails. */
#ifndef CHECK_H_
#define CHECK_H_

#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                       \
  do {                                                                                    \
    ncclResult_t result_ = (call);                                                        \
    if (result_ != ncclSuccess) {                                                         \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, ncclGetErrorString(result_), \
              ncclGetLastError(NULL));                                                    \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

/* Ends the program when a result isn't right. */
#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

#endif /* CHECK_H_ */
