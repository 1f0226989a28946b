#include "mantissa/app/serve/memory_reserve.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace mantissa::serve {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20U;

/// The first part lets the allocation that failed succeed, which may be that of a destructor; the second one
/// is for what follows the exception.
struct Parts {
  std::atomic<void*> first = nullptr, second = nullptr;
};
Parts reserve;

// NOLINTBEGIN(cppcoreguidelines-no-malloc): not an allocation that would call the handler again

void take(std::atomic<void*>& part) {
  if (part != nullptr) return;
  void* memory = std::malloc(kBytes);
  void* none = nullptr;
  if (!part.compare_exchange_strong(none, memory)) std::free(memory);
}

void release() {
  if (void* first = reserve.first.exchange(nullptr)) return std::free(first);
  std::free(reserve.second.exchange(nullptr));
  throw std::bad_alloc();
}

}  // namespace

MemoryReserve::MemoryReserve() {
  refill();
  std::set_new_handler(release);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  std::free(reserve.first.exchange(nullptr));
  std::free(reserve.second.exchange(nullptr));
}

void MemoryReserve::refill() {
  take(reserve.second);
  take(reserve.first);
}

bool MemoryReserve::is_full() {
  return reserve.first != nullptr && reserve.second != nullptr;
}

// NOLINTEND(cppcoreguidelines-no-malloc)

}  // namespace mantissa::serve
