// Memory and threads. The allocator itself is reached by the names that glibc exports beside the usual ones,
// because dlsym() allocates.
#include <pthread.h>

#include <cstdlib>

#include "faults/shim/internal.h"

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

using mantissa::faults::enter;
using mantissa::faults::Group;

bool is_refused(const char* call, std::size_t bytes) {
  if (!mantissa::faults::is_active() || enter(Group::memory, call, bytes).error == 0) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) {
  return is_refused("malloc", bytes) ? nullptr : __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  return is_refused("calloc", count * bytes) ? nullptr : __libc_calloc(count, bytes);
}

void* realloc(void* old, std::size_t bytes) {
  return is_refused("realloc", bytes) ? nullptr : __libc_realloc(old, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return is_refused("aligned_alloc", bytes) ? nullptr : __libc_memalign(alignment, bytes);
}

int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  if (is_refused("posix_memalign", bytes)) return ENOMEM;
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const Create real = mantissa::faults::next_of<Create>("pthread_create");
  const int error = enter(Group::thread, "pthread_create", 0).error;
  return error != 0 ? error : real(thread, attributes, run, argument);
}
}
