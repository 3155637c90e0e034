// The loop's inner loops. Pointers don't overlap, except that a source may equal a destination; n is floats.
#pragma once

#include <cstddef>

namespace loop {

void copy(float* dst, const float* src, size_t n);
void add(float* dst, const float* a, const float* b, size_t n);                      // dst = a + b
void add_to_two(float* dst, float* dst2, const float* a, const float* b, size_t n);  // dst = dst2 = a + b

// The same past the cache: what is written to dst isn't read again soon, so it goes to memory without being
// fetched. Orders its stores before any later one.
void stream_copy(float* dst, const float* src, size_t n);
void stream_add_to_two(float* dst, float* dst2, const float* a, const float* b,
                       size_t n);  // both dst streamed
void stream_add_and_store(float* dst, float* kept, const float* a, const float* b,
                          size_t n);  // only dst streamed

}  // namespace loop
