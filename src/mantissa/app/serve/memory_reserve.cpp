#include "mantissa/app/serve/memory_reserve.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace mantissa::serve {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20U;

std::atomic<void*> reserve = nullptr;

// NOLINTBEGIN(cppcoreguidelines-no-malloc): not an allocation that would call the handler again

void release() {
  std::free(reserve.exchange(nullptr));
  throw std::bad_alloc();
}

}  // namespace

MemoryReserve::MemoryReserve() {
  refill();
  std::set_new_handler(release);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  std::free(reserve.exchange(nullptr));
}

void MemoryReserve::refill() {
  if (is_full()) return;
  void* memory = std::malloc(kBytes);
  void* none = nullptr;
  if (!reserve.compare_exchange_strong(none, memory)) std::free(memory);
}

bool MemoryReserve::is_full() {
  return reserve != nullptr;
}

// NOLINTEND(cppcoreguidelines-no-malloc)

}  // namespace mantissa::serve
